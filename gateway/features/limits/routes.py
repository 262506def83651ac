"""The routes of the page of limits, with the services of a worker."""

from collections.abc import Sequence

from gateway.api.ops_pages import Route
from gateway.features.limits.pages import LimitPages
from gateway.features.limits.service import LimitService
from gateway.server.pages.needs import PageNeeds


def build_routes(needs: PageNeeds) -> Sequence[Route]:
    """Return the routes."""
    limits = needs.shared.features.find(LimitService)
    return LimitPages(limits.list_usage, authorise=needs.authorise).list_routes()
