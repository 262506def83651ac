"""Helpers for tests of the operator's commands: their lines, as a gateway at this address tells them."""

import asyncio
from collections.abc import Callable, Iterator

from api.approval_pages import Desktop

from gateway.cli.operator.remote import Remote


def remote(desk: Desktop, *, key: str | None = "boss") -> Remote:
    return Remote(f"http://127.0.0.1:{desk.lane.port}", key)


async def told(command: Callable[[], Iterator[str]]) -> list[str]:
    """The lines of a command; it waits for answers of a server in this very loop."""
    return await asyncio.to_thread(lambda: list(command()))
