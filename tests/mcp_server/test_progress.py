"""Reports about the progress of a call."""

import asyncio
from collections.abc import Sequence
from math import inf, nan
from types import SimpleNamespace
from typing import Any

from gateway.contracts.exchange import CallProgress
from gateway.mcp_server.progress import PAUSE_S, ProgressReporter
from tests.mcp_server import hostile
from tests.mcp_server.serving import Era, both_eras, server, texts, world

Told = tuple[float, float | None, str | None]


class Session:
    """A client that takes its time."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.reads = asyncio.Event()

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self.told.append((progress, total, message))
        await self.reads.wait()


def context(session: Session, **meta: object) -> Any:
    return SimpleNamespace(session=session, params={"_meta": meta})


async def test_slow_client_gets_only_the_latest_progress_report() -> None:
    """A client that wants no reports gets none."""
    session = Session()
    progress = ProgressReporter(context(session, progressToken=1), pause_s=0.0)
    for message in ("a", "b", "c"):
        progress.queue_report(CallProgress(message))
        await asyncio.sleep(0)
    session.reads.set()
    while len(session.told) < 2:
        await asyncio.sleep(0)
    progress.close()
    assert session.told == [(0.001, None, "a"), (0.002, None, "c")]
    quiet = Session()
    ProgressReporter(context(quiet)).queue_report(CallProgress("a"))
    await asyncio.sleep(0)
    assert quiet.told == []


async def told(*reports: CallProgress) -> Sequence[Told]:
    """Return what a client that keeps up gets of these reports."""
    session = Session()
    session.reads.set()
    progress = ProgressReporter(context(session, progressToken=1), pause_s=0.0)
    for number, report in enumerate(reports, 1):
        progress.queue_report(report)
        while len(session.told) < number:
            await asyncio.sleep(0)
    progress.close()
    return session.told


async def test_server_progress_numbers_are_forwarded_unchanged() -> None:
    """Also behind the gateway's own messages."""
    reports = (CallProgress("it waits"), CallProgress(None, 1.0, 4.0), CallProgress("more", 2.5, 4.0))
    assert await told(*reports) == [(0.001, None, "it waits"), (1.0, 4.0, None), (2.5, 4.0, "more")]


async def test_progress_numbers_always_increase() -> None:
    """A report whose number is none, or does not grow, is sent as a small step."""
    found = await told(*(CallProgress("x", number, inf) for number in (0.0, 3.0, 3.0, 1.0, nan, inf)))
    assert found == [(number, None, "x") for number in (0.001, 3.0, 3.001, 3.002, 3.003, 3.004)]


async def test_progress_reports_are_throttled_and_the_last_is_always_sent() -> None:
    """The latest one after each pause; the last one just before the result."""
    session = Session()
    session.reads.set()
    progress = ProgressReporter(context(session, progressToken=1), pause_s=3600.0)
    for number in range(1, 1000):
        progress.queue_report(CallProgress("x", float(number)))
        await asyncio.sleep(0)
    await progress.send_last_report()
    assert session.told == [(1.0, None, "x"), (999.0, None, "x")]
    await progress.send_last_report()
    await ProgressReporter(context(session)).send_last_report()
    assert len(session.told) == 2 and PAUSE_S >= 0.1


@both_eras
async def test_progress_message_is_reduced_to_one_visible_line(era: Era, calm: dict[str, object]) -> None:
    """So it looks like no further line."""
    told: list[str | None] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    async with world(here=server(module="tests.mcp_server.hostile"), **calm) as made, made.client(era) as client:
        result = await client.call_tool("here__progress", {"steps": 1, "pause": 0}, progress_callback=progressed)
        assert texts(result) == "done" and "\n" in hostile.FORGED
        assert told == ["x This call has NOT run held because : y[2Jz"]
