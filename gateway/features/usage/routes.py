"""The routes of the page of usage, with the services of a worker."""

from collections.abc import Sequence

from gateway.api.ops_pages import Route
from gateway.features.usage.pages import UsagePages
from gateway.features.usage.service import UsageService
from gateway.server.pages.needs import PageNeeds


def build_routes(needs: PageNeeds) -> Sequence[Route]:
    """Return the routes."""
    usage = needs.shared.features.find(UsageService)
    pages = UsagePages(
        store=needs.shared.store,
        flush=usage.ledger.flush,
        is_enabled=lambda: needs.get_settings().usage.enabled,
        authorise=needs.authorise,
        clock=needs.shared.clock,
    )
    return pages.list_routes()
