"""The tools and the gate of the configuration in use, whichever configuration a run began with."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.contracts.risk import Verdict
from gateway.contracts.store import Json
from gateway.tools.judge import Judge
from gateway.tools.remembered import Binding
from gateway.tools.runner import Runner


@dataclass(frozen=True, slots=True)
class Equipment:
    """What one configuration judges calls and runs them with.

    `hold` keeps its tools open, also past a reload, until what it returns is called.
    """

    judge: Judge
    runner: Runner
    hold: Callable[[], Callable[[], Awaitable[None]]]


@dataclass(frozen=True, slots=True)
class InUse:
    """`current` gives the equipment as of now: a reload in the middle of a group holds from the next call on."""

    current: Callable[[], Equipment]

    @property
    def judge(self) -> Judge:
        return self.current().judge

    def binding(self, tool: str) -> Binding | None:
        """See `Judges`."""
        return self.judge.binding(tool)

    def edited(self, tool: str, arguments: Json) -> Verdict:
        """See `Judges`."""
        return self.judge.edited(tool, arguments)
