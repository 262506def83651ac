"""The webhooks of one worker, started anew when their settings change.

One worker of all has the duty to send notices (`gateway.approvals.webhooks`). Each stands by, so that they are sent
also while another one stands still.
"""

from collections.abc import Sequence

from gateway.approvals.webhooks import DecisionLinks, Webhooks
from gateway.config import Settings
from gateway.config.schema.approvals import Notify
from gateway.server.worker_services import WorkerServices


class Notices:
    """The webhooks that announce approvals, with the settings that they were started with."""

    def __init__(self, shared: WorkerServices) -> None:
        self._shared = shared
        self._webhooks: Webhooks | None = None
        self._used: tuple[Sequence[Notify], str | None] = ((), None)

    async def apply_settings(self, settings: Settings) -> None:
        """Start the webhooks of this configuration, if they are others: pending approvals are reported again."""
        wanted = (settings.approvals.notify, settings.console_url)
        if wanted == self._used:
            return
        old, self._used, shared = self._webhooks, wanted, self._shared
        if old is not None or settings.approvals.notify:
            told = (*wanted, shared.clock, shared.counters)
            links = _build_links(shared, settings.approvals.notify)
            self._webhooks = Webhooks(shared.store, shared.feed, *told, owner=shared.leases.owner, links=links)
            if old is not None:
                await old.close()
            await self._webhooks.start()

    async def close(self) -> None:
        """End the webhooks. Idempotent."""
        if self._webhooks is not None:
            await self._webhooks.close()


def _build_links(shared: WorkerServices, notify: Sequence[Notify]) -> DecisionLinks | None:
    """Return what makes the links of these webhooks; None: none of them gets any."""
    if all(entry.links is None for entry in notify):
        return None
    from gateway.approvals.links import Links  # signatures, which most gateways do not need

    return Links(shared.store, lambda: notify)
