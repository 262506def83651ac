"""The cost of the endpoint for MCP clients to all others: a gateway with it takes turns with one without it."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

from bench.grown import Grown, Json, build_chat, post, print_row, send_in_turn
from bench.growth_runs import CHAT, build_config
from bench.model import ROUNDS, Model
from bench.run import compile_programs
from bench.systems import Running, System, free_port
from bench.turns import measure_in_turns
from bench.workloads import SATURATED

#: Requests of one round of one gateway; the gateways take turns.
RELAYED: Final = 500
CHATS: Final = 20
CONNECTIONS: Final = 16
_KINDS: Final[Mapping[str, Json]] = {"without": {}, "with": {"mcp": {"serve": {}}}}


def measure(folder: Path, *, rounds: int) -> None:
    """Print the rows, each of so many rounds."""
    folder.mkdir()
    compile_programs(folder)
    port = free_port()
    mock = Running(System("mock", (str(folder / "mock_upstream"), str(port)), port), folder=folder)
    relayed = post("/u/chat/completions", build_chat("x" * 900))
    try:
        mock.await_ready(SATURATED.build_request(port))
        with Model() as model, ExitStack() as open_:
            base = build_config(folder, model.port)
            base["upstreams"].append({"name": "u", "base_url": f"http://127.0.0.1:{port}/v1", "paths": ["/u/"]})
            gateways = {
                name: open_.enter_context(Grown(folder / name, {**base, **more})) for name, more in _KINDS.items()
            }
            _print_row("a passthrough request", gateways, [relayed] * RELAYED, rounds=rounds, connections=CONNECTIONS)
            asked = [post(CHAT, build_chat(f"{ROUNDS}0 {number}")) for number in range(CHATS)]
            _print_row("a chat request", gateways, asked, rounds=rounds, connections=1)
    finally:
        mock.stop()


def _print_row(
    what: str, gateways: Mapping[str, Grown], requests: Sequence[bytes], *, rounds: int, connections: int
) -> None:
    def measure_spent(gateway: Grown) -> float:
        with gateway.counted() as cost:
            send_in_turn(gateway.port, requests, connections=connections)
        return cost.cpu_s / len(requests) * 1e6

    spent_us = measure_in_turns(gateways, measure_spent, rounds=rounds)
    ratio = median(one / other for one, other in zip(spent_us["with"], spent_us["without"], strict=True))
    calmest = " beside ".join(f"{min(spent_us[name]):.0f}" for name in ("with", "without"))
    facts = f"{ratio:.2f} x (median of the rounds), {calmest} us of CPU in the calmest"
    print_row(f"{what} with `mcp.serve`, beside one without", f"{rounds} rounds in turn", facts)
