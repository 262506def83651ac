"""Messages about the progress of a call."""

import asyncio
from types import SimpleNamespace
from typing import Any

from gateway.mcp_server.progress import Progress


class Session:
    """A client that takes its time."""

    def __init__(self) -> None:
        self.told: list[tuple[float, str]] = []
        self.reads = asyncio.Event()

    async def report_progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        self.told.append((progress, message))
        await self.reads.wait()


def context(session: Session, **meta: object) -> Any:
    return SimpleNamespace(session=session, params={"_meta": meta})


async def test_a_client_that_does_not_keep_up_gets_the_latest_message() -> None:
    """Numbers grow; one that wants none gets none."""
    session = Session()
    progress = Progress(context(session, progressToken=1))
    for message in ("a", "b", "c"):
        progress.tell(message)
        await asyncio.sleep(0)
    session.reads.set()
    while len(session.told) < 2:
        await asyncio.sleep(0)
    progress.close()
    assert session.told == [(1.0, "a"), (2.0, "c")]
    quiet = Session()
    Progress(context(quiet)).tell("a")
    await asyncio.sleep(0)
    assert quiet.told == []
