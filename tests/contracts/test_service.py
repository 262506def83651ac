"""What a fleet asks of a service: known by what a service offers, without a base class."""

from gateway.contracts.service import ManagedService
from gateway.mcp.broken_server import BrokenServer
from gateway.tools.results import Results


def test_managed_service_is_recognized_by_its_methods() -> None:
    """A source of tools that nobody can start is no managed service."""
    assert isinstance(BrokenServer("time", error="no such module", transport="http", since_s=5.0), ManagedService)
    assert not isinstance(Results(), ManagedService)
