"""The looks of a worker at what others changed, at intervals."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.contracts.storage.store import StoreError
from gateway.server.context_lane import LaneServices
from gateway.server.store_gauges import Backlog
from gateway.server.worker_services import WorkerServices
from gateway.telemetry.history import History

log = logging.getLogger("gateway")

#: How often a worker looks that has others, on this machine or on another one. A single worker, and one whose store
#: failed, looks this rarely.
LOOK_S: Final = 0.2
STORE_PAUSE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicChecks:
    """The looks of one worker at what the configuration in use (`current`) shares with other workers, if it has any."""

    shared: WorkerServices
    current: Callable[[], LaneServices]
    history: History
    backlog: Backlog
    has_others: bool

    async def run(self) -> None:
        """Read the changes of other workers until it is cancelled. A store that fails is logged, and read later."""
        while True:
            self.history.add_point_if_due()
            try:
                await self.current().prompts.refresh()
                await self.shared.mcp_servers.refresh()
                await self.current().lane.approvals.expire()
                await self.backlog.read_state(self.shared.store)
            except StoreError as error:
                log.error("the store failed: %s", error)
                await asyncio.sleep(STORE_PAUSE_S)
            await asyncio.sleep(LOOK_S if self.has_others else STORE_PAUSE_S)
