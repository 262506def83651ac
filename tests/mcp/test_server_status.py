"""What operators see of the services of workers: states, errors without secrets, and counts."""

import asyncio

import pytest
from agent.doubles import samples
from prometheus_client.core import Metric

from gateway.contracts.service import ServiceStatus
from gateway.contracts.storage.store import StoredService, WorkerService
from gateway.mcp.server import DesiredServer
from gateway.mcp.servers import FRESH_S, TELL_EVERY_S, McpServers, ServerStatus
from tests.mcp.workers import SECRET, Workers, X, configured
from tests.tools.managed import Managed


async def test_workers_report_service_states_until_they_close(workers: Workers) -> None:
    """On each change, and at their end that they see nothing any more."""
    one, other = await workers.start("w1", time=X), await workers.start("w2", time=X)
    await workers.until_told(("w1", "time", "running"), ("w2", "time", "running"))
    workers.service(worker="w2").becomes("error", error=f"exit code 1, key {SECRET}")
    await workers.until_told(("w1", "time", "running"), ("w2", "time", "error"))
    (seen,) = await one.list_services()
    assert (seen.state, seen.condition.state, [o.worker for o in seen.others]) == ("error", "running", ["w2"])
    assert seen.error == f"exit code 1, key {SECRET}"
    await other.close()
    await workers.until_told(("w1", "time", "running"))
    assert (await one.list_services())[0].state == "running"


async def test_status_of_a_dead_worker_expires(workers: Workers) -> None:
    """It says again what it sees as long as it lives."""
    mcp_servers = await workers.start(time=X)
    dead = WorkerService(worker="dead", name="time", state="error", error="no", updated_s=workers.clock.now_s)
    await workers.store.report_services("dead", [dead])
    assert (await mcp_servers.list_services())[0].state == "error"
    workers.clock.now_s += FRESH_S + 1
    assert (await mcp_servers.list_services())[0].state == "running" and TELL_EVERY_S < FRESH_S / 2


async def test_service_output_and_errors_are_stored_without_secrets(workers: Workers) -> None:
    """Neither here nor for other workers."""
    mcp_servers = await workers.start(time={**X, "env": {"K": SECRET}})
    service = workers.service()
    service.stderr = (f"key is {SECRET}", "fine")
    service.becomes("error", error=f"{SECRET} is wrong" + "x" * 1000)
    await workers.until_told(("w1", "time", "error"))
    (told,) = await workers.store.list_reported_services(since_s=0.0)
    (seen,) = await mcp_servers.list_services()
    assert SECRET not in repr((told, seen.condition)) and seen.condition.stderr == ("key is ***", "fine")
    assert told.error is not None and len(told.error) == 500


@pytest.mark.parametrize(
    ("states", "worst"),
    [
        (("running", "starting"), "starting"),
        (("running", "stopped", "starting"), "stopped"),
        (("stopped", "error"), "error"),
        (("running",), "running"),
    ],
)
async def test_worst_state_of_all_workers_is_shown(states: tuple[str, ...], worst: str) -> None:
    """Of all workers."""
    others = [WorkerService(worker="w", name="x", state=state, updated_s=0.0) for state in states[1:]]  # type: ignore[arg-type]
    condition = ServiceStatus(state=states[0], since_s=0.0, transport="stdio")  # type: ignore[arg-type]
    wanted = DesiredServer("configured", None, StoredService(name="x"))
    assert ServerStatus("x", wanted, Managed("x"), condition, others).state == worst


# What is counted.


def up(mcp_servers: McpServers) -> dict[str, float]:
    found: list[Metric] = list(mcp_servers.collect_families())
    return {sample.labels["server"]: sample.value for family in found for sample in family.samples}


async def test_up_metric_reports_each_running_service(workers: Workers) -> None:
    """One value each; beyond 32 the worst of the rest."""
    mcp_servers = await workers.start(time=X, git=X)
    workers.service("git").becomes("error")
    assert up(mcp_servers) == {"time": 1, "git": 0}
    mcp_servers.configure(configured(**{f"s{i:03}": X for i in range(150)}))
    await mcp_servers.refresh()
    await asyncio.gather(*(mcp_servers.wait_until_applied(f"s{i:03}") for i in range(150)))
    assert len(up(mcp_servers)) == 33 and up(mcp_servers)["other"] == 1
    workers.service("s140").becomes("stopped")
    assert up(mcp_servers)["other"] == 0 and up(mcp_servers)["s000"] == 1


async def test_automatic_restarts_are_counted(workers: Workers) -> None:
    """Each once; a start by an operator begins anew, and is none."""
    await workers.start(time=X)
    name = ("gateway_mcp_server_restarts_total", ("time",))
    for restarts, counted in ((2, 2), (0, 2), (1, 3)):
        workers.service().restarts = restarts
        state = "error" if restarts else "running"
        workers.service().becomes(state, error=f"{restarts}")  # type: ignore[arg-type]
        await workers.until_told(("w1", "time", state, f"{restarts}"))
        assert samples(workers.counters)[name] == counted
