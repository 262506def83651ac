"""The tools and the gate of the configuration in use, also for runs that began with an older one."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.contracts.exchange import Exchange
from gateway.contracts.risk import Verdict
from gateway.contracts.store import Json
from gateway.tools.judge import Judge
from gateway.tools.remembered import Binding
from gateway.tools.runner import Runner


@dataclass(frozen=True, slots=True)
class Equipment:
    """The judge and the runner of one configuration.

    `hold` leaves its tools open, also past a reload, until you call the function that it returns.
    """

    judge: Judge
    runner: Runner
    hold: Callable[[], Callable[[], Awaitable[None]]]


@dataclass(frozen=True, slots=True)
class InUse:
    """The equipment in use: `current` returns it. A reload in the middle of a group applies from the next call on."""

    current: Callable[[], Equipment]

    @property
    def judge(self) -> Judge:
        return self.current().judge

    def binding(self, tool: str) -> Binding | None:
        """Return the binding as `Judges` defines it."""
        return self.judge.binding(tool)

    def edited(self, tool: str, arguments: Json) -> Verdict:
        """Return the verdict as `Judges` defines it."""
        return self.judge.edited(tool, arguments)

    def barred(self, exchange: Exchange) -> str | None:
        """Return the reason as `Judges` defines it."""
        return self.judge.barred(exchange)
