"""Helpers that start a server for tests: a clock, counters that remember, and a wait for what is to become of it."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from gateway.mcp.backoff import Backoff
from gateway.mcp.server_facts import Channel, Config
from gateway.mcp.server_supervisor import ServerSupervisor
from gateway.mcp.transport.process import Program
from gateway.mcp.transport.start_limit import Starts
from tests.mcp.misbehaving import command


class Clock:
    """`contracts.Clock`."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()


class Counters:
    """`contracts.Counters`; `observed` holds the labels of each observation."""

    def __init__(self) -> None:
        self.observed: list[dict[str, str]] = []

    def count(self, name: str, **labels: str) -> None:
        raise AssertionError(f"nothing is counted, but {name!r} was: {labels}")

    def observe(self, name: str, value: float, **labels: str) -> None:
        assert name == "mcp_client_operation_duration_seconds" and value >= 0
        self.observed.append(labels)

    def errors(self, method: str) -> list[str]:
        return [labels["error_type"] for labels in self.observed if labels["mcp_method_name"] == method]


class Changes:
    """Is told of changes, and waits for one after which something holds."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def __call__(self) -> None:
        self._changed.set()

    async def until(self, holds: Callable[[], bool], *, within_s: float = 60.0) -> None:
        """Returns as soon as it holds after a change."""
        async with asyncio.timeout(within_s):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


class Stand:
    """A session with all that it needs; `stands(...)` makes one of a program that behaves as it is told."""

    def __init__(
        self, server: Config, make_channel: Callable[[Callable[[str], None]], Channel], *, starts: Starts | None = None
    ) -> None:
        self.changes, self.counters = Changes(), Counters()
        self.session = ServerSupervisor(
            server,
            make_channel,
            changed=self.changes,
            counters=self.counters,
            clock=Clock(),
            backoff=Backoff(first_s=0.05, longest_s=0.2),
            starts=starts,
        )

    async def running(self) -> None:
        await self.changes.until(lambda: self.session.is_running)

    async def __aenter__(self) -> "Stand":
        self.session.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        async with asyncio.timeout(120):
            await self.session.stop()

    async def said(self, tool: str, **arguments: Any) -> str:
        return (await self.session.call(tool, arguments)).content


def stands(
    *behaviour: object,
    argv: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    starts: Starts | None = None,
    **facts: Any,
) -> Stand:
    program, *args = argv or command(*map(str, behaviour))

    def make_channel(lost: Callable[[str], None]) -> Channel:
        from gateway.mcp.transport.stdio import StdioTransport

        return StdioTransport(Program(program, tuple(args), env or {}))

    return Stand(Config(name="box", command="box", **facts), make_channel, starts=starts)
