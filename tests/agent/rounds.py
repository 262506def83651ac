"""Calls of a high risk, and the events of a reply in which they wait."""

from gateways import until, until_read

from gateway.contracts.storage.store import Json

from .agent_bench import Bench, call

RISKY = "high"


def risky(x: int = 1) -> str:
    return call(risk_level=RISKY, x=x)


def events_of(told: list[Json]) -> list[str]:
    return [one["context"]["type"] for one in told if "type" in one.get("context", {})]


async def until_asked(bench: Bench) -> None:
    await until(lambda: bench.is_open)
    await until_read(bench.pending_approvals)
