"""The tools and the gate of the configuration in use, also for runs that began with an older one."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

from gateway.contracts.exchange import Exchange
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.tools.call_evaluator import Judge
from gateway.tools.decision_rules import DecisionRules
from gateway.tools.grants import ApprovalBinding
from gateway.tools.runner import Runner

#: How long a call waits for a service that is starting, and how often it looks.
STARTS_S: Final = 15.0
_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Equipment:
    """The judge and the runner of one configuration.

    `hold` leaves its tools open, also past a reload, until you call the function that it returns.
    """

    judge: Judge
    runner: Runner
    hold: Callable[[], Callable[[], Awaitable[None]]]


@dataclass(frozen=True, slots=True)
class ActiveEquipment:
    """The equipment in use: `current` returns it. A reload in the middle of a group applies from the next call on."""

    current: Callable[[], Equipment]

    @property
    def judge(self) -> Judge:
        return self.current().judge

    async def wait_until_started(self, tools: Collection[str]) -> None:
        """Wait for the services of these tools that are starting, as in a new gateway: `STARTS_S` at most."""
        for _ in range(round(STARTS_S / _LOOK_S)):
            if not any(map(self.judge.catalog.is_starting, tools)):
                break
            await asyncio.sleep(_LOOK_S)

    @property
    def rules(self) -> DecisionRules:
        return self.judge.rules

    def find_binding(self, tool: str) -> ApprovalBinding | None:
        """Return the binding as `Judges` defines it."""
        return self.judge.find_binding(tool)

    def judge_edit(self, tool: str, arguments: Json) -> Verdict:
        """Return the verdict as `Judges` defines it."""
        return self.judge.judge_edit(tool, arguments)

    def find_client_refusal(self, exchange: Exchange) -> str | None:
        """Return the reason as `Judges` defines it."""
        return self.judge.find_client_refusal(exchange)
