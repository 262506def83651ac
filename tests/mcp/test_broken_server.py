"""A service that cannot be built is a service all the same: stopped, started, asked, without ever running."""

from gateway.contracts.service import ManagedService
from gateway.mcp.broken_server import BrokenServer
from tests.tools.doubles import call, exchange


async def test_broken_server_reports_its_error_and_runs_nothing() -> None:
    """Whatever is asked of it; no call of it can be meant, and one that is made all the same is a result."""
    service = BrokenServer("time", error="no such module", transport="http", since_s=5.0)
    assert isinstance(service, ManagedService)
    service.watch(lambda: None)
    service.accept({"now": "x"})
    service.start()
    await service.stop()
    await service.close()
    condition = service.get_condition()
    assert (condition.state, condition.error, condition.transport, condition.since_s) == (
        "error",
        "no such module",
        "http",
        5.0,
    )
    facts = service.get_service()
    assert (facts.name, facts.description, facts.running, dict(facts.tools)) == ("time", "time", False, {})
    assert service.find_document("now") is None
    assert not service.list_definitions() and service.find_spec("now") is None and not await service.list_tools()
    assert await service.refusal(call("time.now"), exchange()) is None
    result = await service.call(call("time.now"), exchange())
    assert not result.ok and "'time' of the tool 'time.now' cannot run" in result.content
