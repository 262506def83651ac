"""Stores that fail or whose process dies, and calls that need an approval."""

from .agent_bench import Bench, call


class KilledError(BaseException):
    """What the process does not survive."""


def risky(x: int = 1, **facts: bool) -> str:
    return call(risk_level="high", x=x, **facts)  # type: ignore[arg-type]


def xs(bench: Bench) -> list[object]:
    return [asked.arguments["x"] for asked in bench.calls]
