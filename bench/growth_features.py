"""The cost of each feature: a gateway with it takes turns with one without any, in CPU that it adds to a request."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from bench.grown import Client, Grown, Json, build_chat, post, print_row, send_in_turn
from bench.growth_runs import CHAT
from bench.run import compile_programs, prepare_machine
from bench.systems import CLIENT_KEY, UPSTREAM_KEY, Running, System, free_port
from bench.turns import Spent, measure_in_turns
from bench.workloads import CONTEXT, SATURATED, STREAMS_64, Workload
from bench.workloads import Client as Load

#: A program is not always as fast as an equal one: each figure is of so many pairs of gateways, one after the other.
PAIRS: Final = 3
#: Connections in the context lane.
CONNECTIONS: Final = 8
_ADMIN_KEY: Final = "sk-bench-admin-0123456789abcdef0123456789abcdef"
#: More than any gateway can do, so that nothing is refused.
_MOST: Final = 1_000_000_000
_TOLD_64: Final = replace(STREAMS_64, asks_usage=True)
_STAGES: Final = ("intent", "memory", "prompt_enhancer", "agent_loop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A feature in the passthrough lane: what the configuration has for it, at its top level and where named.

    `bar_us`: the most that it may add to a request. `sample`: the share of requests with traces, which the upstream
    takes; None: there are none. Both gateways have so many `workers`.
    """

    more: Json = field(default_factory=dict)
    upstream: Json = field(default_factory=dict)
    key: Json = field(default_factory=dict)
    workload: Workload = SATURATED
    runtime_key: bool = False
    bar_us: float | None = None
    sample: float | None = None
    workers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A feature in the context lane. `use`: a stage, with its settings, at a place in the chain.

    `repeats`: all requests are equal.
    """

    use: str | None = None
    settings: Json = field(default_factory=dict)
    place: int = len(_STAGES)
    model: str = CONTEXT.model
    repeats: bool = False


_USAGE: Final[Json] = {"usage": {"enabled": True}}
_FIGURES: Final[Json] = {"requests_per_minute": _MOST, "tokens_per_minute": _MOST, "concurrent": _MOST}
_LIMITS: Final[Json] = {"limits": _FIGURES}
_OF_TENANT: Final[Json] = {"limits": {"tenants": {"team": _FIGURES}}}
_OF_MODEL: Final[Json] = {"limits": {"models": {"*": _FIGURES}}}
_BY_MODEL: Final[Json] = {"passthrough": {"by_model": True}}
_PASSTHROUGH: Final[Mapping[str, Feature]] = {
    "nothing (another gateway without any)": Feature(),
    "a key of the store": Feature(more={"runtime_keys": {"enabled": True}}, runtime_key=True),
    "several endpoints, retries, breakers": Feature(upstream={"endpoints": 3}),
    "the same and `hedge`": Feature(upstream={"endpoints": 3, "hedge": "2s"}),
    "the same and `balance: sticky`": Feature(upstream={"endpoints": 3, "balance": "sticky"}),
    "`passthrough.by_model`": Feature(more=_BY_MODEL),
    "`usage`": Feature(more=_USAGE),
    "limits of requests": Feature(key={"limits": {"requests_per_minute": _MOST, "concurrent": _MOST}}),
    "limits of requests and tokens": Feature(key=_LIMITS),
    "`usage` and these limits": Feature(more=_USAGE, key=_LIMITS, bar_us=5.0),
    "the same and two workers": Feature(more=_USAGE, key=_LIMITS, bar_us=5.0, workers=2),
    "the same and a budget": Feature(
        more=_USAGE, key={"limits": {**_FIGURES, "tokens_per_month": 1000 * _MOST}}, bar_us=5.0
    ),
    "the same and limits of the tenant and the upstream": Feature(
        more={**_USAGE, **_OF_TENANT}, key={**_LIMITS, "tenant": "team"}, upstream=_LIMITS
    ),
    "`usage` and `passthrough.by_model`": Feature(more={**_USAGE, **_BY_MODEL}),
    "the same and limits of the key and the model": Feature(more={**_USAGE, **_BY_MODEL, **_OF_MODEL}, key=_LIMITS),
    "`tracing`, no request sampled": Feature(sample=0.0),
    "`tracing`, one in ten": Feature(sample=0.1),
    "`tracing`, all of them": Feature(sample=1.0),
    "all of it but `tracing`": Feature(
        more={**_USAGE, **_BY_MODEL},
        upstream={"endpoints": 3, "hedge": "2s", "balance": "sticky"},
        key=_LIMITS,
    ),
}
_STREAMED: Final[Mapping[str, Feature]] = {
    "nothing (another gateway without any)": Feature(workload=_TOLD_64),
    "`usage`": Feature(more=_USAGE, workload=_TOLD_64),
    "`usage`, which the stream does not tell": Feature(more=_USAGE, workload=STREAMS_64),
    "`usage` and limits": Feature(more=_USAGE, key=_LIMITS, workload=_TOLD_64),
}
_CONTEXT: Final[Mapping[str, Stage]] = {
    "nothing (another gateway without any)": Stage(),
    "an alias of the model": Stage(model="fast"),
    "`response_cache`, a miss": Stage(use="response_cache"),
    "`response_cache`, a hit": Stage(use="response_cache", repeats=True),
    "`redact_pii`": Stage(use="redact_pii"),
    "`block_list`": Stage(
        use="block_list",
        settings={"phrases": {"projects": ["Blue Heron"]}, "patterns": {"tickets": r"\bSEC-[0-9]{3,5}\b"}},
        place=0,
    ),
}


def measure(folder: Path, *, rounds: int, seconds: float, requests: int, pairs: int = PAIRS) -> None:
    """Print the rows, each of so many rounds; a turn takes so many seconds, or requests of the context lane."""
    with _two_cores() as core, ExitStack() as ends:
        compile_programs(folder)
        port = free_port()
        mock = Running(System("mock", (str(folder / "mock_upstream"), str(port)), port), folder=folder)
        ends.callback(mock.stop)
        mock.await_ready(SATURATED.build_request(port))
        bench = _Bench(folder, port, core=core, rounds=rounds, pairs=pairs)
        load = Load(folder / "load", upstream=mock)
        for name, feature in _PASSTHROUGH.items():
            bench.measure_passthrough("a passthrough request", name, feature, load, seconds=seconds)
        for name, feature in _STREAMED.items():
            bench.measure_passthrough("a stream of 64 events", name, feature, load, seconds=seconds)
        for name, stage in _CONTEXT.items():
            bench.measure_context(name, stage, requests=requests)


class _Bench:
    """Pairs of gateways in front of the upstream at `port`, which run on `core`."""

    def __init__(self, folder: Path, port: int, *, core: int, rounds: int, pairs: int) -> None:
        self._folder = folder
        self._port = port
        self._core = core
        self._pairs = pairs
        self._rounds = -(-rounds // pairs)
        self._names = count()

    def measure_passthrough(self, what: str, name: str, feature: Feature, load: Load, *, seconds: float) -> None:
        """Print the row of a feature in the passthrough lane."""
        found: list[tuple[float, float]] = []
        for _ in range(self._pairs):
            with self._pair(
                self._build_relay_config(Feature()), self._build_relay_config(feature), workers=feature.workers
            ) as gateways:
                keys = {gateways["with"].port: _make_key(gateways["with"])} if feature.runtime_key else {}

                def measure_spent(gateway: Grown, keys: Mapping[int, str] = keys) -> float:
                    workload = replace(feature.workload, key=keys.get(gateway.port, CLIENT_KEY))
                    outcome = load.run(workload, system=gateway.running, seconds=seconds)
                    return outcome.cpu_s / outcome.requests * 1e6

                found += self._measure_turns(gateways, measure_spent)
        _print_row(f"{what} with {name}", found, bar_us=feature.bar_us)

    def measure_context(self, name: str, stage: Stage, *, requests: int) -> None:
        """Print the row of a feature in the context lane."""
        numbers = count()
        found: list[tuple[float, float]] = []
        for _ in range(self._pairs):
            with self._pair(self._build_answer_config(Stage()), self._build_answer_config(stage)) as gateways:

                def measure_spent(gateway: Grown, having: Grown = gateways["with"]) -> float:
                    model = stage.model if gateway is having else CONTEXT.model
                    sent = [_build_request(model, 0 if stage.repeats else next(numbers)) for _ in range(requests)]
                    with gateway.counted() as cost:
                        send_in_turn(gateway.port, sent, connections=CONNECTIONS)
                    return cost.cpu_s / requests * 1e6

                found += self._measure_turns(gateways, measure_spent)
        _print_row(f"a context request with {name}", found)

    @contextmanager
    def _pair(self, without: Json, having: Json, *, workers: int = 1) -> Iterator[dict[str, Grown]]:
        """Run a gateway without a feature, and one with it."""
        with ExitStack() as open_:
            gateways = {
                name: Grown(self._folder / f"{name}{next(self._names)}", config, workers=workers, core=self._core)
                for name, config in (("without", without), ("with", having))
            }
            for gateway in gateways.values():
                open_.enter_context(gateway)
            yield gateways

    def _measure_turns(self, gateways: Mapping[str, Grown], spent: Spent) -> list[tuple[float, float]]:
        """Return what a request costs with a feature, and without it, by rounds."""
        spent_us = measure_in_turns(gateways, spent, rounds=self._rounds)
        return list(zip(spent_us["with"], spent_us["without"], strict=True))

    def _build_relay_config(self, feature: Feature) -> Json:
        upstream = dict(feature.upstream)
        url = f"http://127.0.0.1:{self._port}/v1"
        if ends := upstream.pop("endpoints", 0):
            upstream["endpoints"] = [{"name": f"e{number}", "url": url} for number in range(ends)]
        else:
            upstream["base_url"] = url
        if feature.more.get("passthrough"):
            upstream["models"] = ["bench*"]
        client = {**_build_key("bench", CLIENT_KEY, "passthrough"), **feature.key}
        admin = _build_key("admin", _ADMIN_KEY, "passthrough", "admin")
        upstream |= {"name": "mock", "api_key": UPSTREAM_KEY}
        config: Json = {"upstreams": [upstream], "keys": [client, admin], **feature.more}
        if feature.sample is not None:
            config["tracing"] = {"endpoint": f"http://127.0.0.1:{self._port}", "sample": feature.sample}
        return config

    def _build_answer_config(self, stage: Stage) -> Json:
        chain: list[Json] = [{"use": name} for name in _STAGES]
        if stage.use is not None:
            chain.insert(stage.place, {"use": stage.use, "with": stage.settings})
        models = {} if stage.model == CONTEXT.model else {stage.model: {"use": [{"model": CONTEXT.model}]}}
        upstream = {"name": "mock", "base_url": f"http://127.0.0.1:{self._port}/v1"}
        return {"upstreams": [upstream], "models": models, "chains": {"assistant": chain}}


def _build_request(model: str, number: int) -> bytes:
    return post(CHAT, {**build_chat(f"{number} {'lorem ipsum dolor ' * 50}"), "model": model, "temperature": 0})


def _print_row(what: str, found: Sequence[tuple[float, float]], *, bar_us: float | None = None) -> None:
    added_us = [one - other for one, other in found]
    middle_us = median(added_us)
    low_us, _, high_us = quantiles(added_us, n=4)
    calmest = " beside ".join(f"{min(column):.1f}" for column in zip(*found, strict=True))
    miss = " MISS" if bar_us is not None and middle_us > bar_us else ""
    spread = f"the middle half of the rounds: {low_us:+.1f} to {high_us:+.1f}"
    print_row(
        what, f"{len(found)} rounds in turn", f"{middle_us:+.1f} us{miss} ({spread}); {calmest} us in the calmest"
    )


def _build_key(name: str, text: str, *scopes: str) -> Json:
    return {"name": name, "sha256": hashlib.sha256(text.encode()).hexdigest(), "scopes": list(scopes)}


def _make_key(gateway: Grown) -> str:
    """Make a key at run time, and return it."""
    asked = post("/context/keys", {"name": "made", "scopes": ["passthrough"]}, {"X-Gateway-Key": _ADMIN_KEY})
    with Client(gateway.port) as client:
        made: str = json.loads(client.ask(asked, status=201))["key"]
    return made


@contextmanager
def _two_cores() -> Iterator[int]:
    """Run this script, and all that it starts without a core of its own, on the first core; yield the second one."""
    before = os.sched_getaffinity(0)
    try:
        yield prepare_machine()
    finally:
        os.sched_setaffinity(0, before)
