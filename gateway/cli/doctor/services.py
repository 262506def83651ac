"""MCP servers, started once as a worker starts them: whether each comes up, how fast, and the name that it reports."""

import asyncio
import time
from collections.abc import AsyncIterator

from gateway.aio.clock import SystemClock, wait_until_set
from gateway.cli.doctor.findings import Finding
from gateway.config import Settings
from gateway.mcp.servers import ServerStatus
from gateway.registry.stores import build_scratch_store
from gateway.server.context_lane import make_servers
from gateway.telemetry.counters import ContextCounters


async def examine_services(settings: Settings, *, timeout_s: float) -> AsyncIterator[Finding]:
    """Yield what became of each server within `timeout_s`. Nothing of a server runs any more at the end."""
    enabled = {name: server for name, server in settings.mcp.servers.items() if server.enabled}
    if not enabled:
        return
    store = build_scratch_store()
    await store.open()
    servers = make_servers(store, worker="doctor", counters=ContextCounters(), clock=SystemClock())
    stirred, began_s = asyncio.Event(), time.monotonic()
    servers.watch(stirred.set)
    servers.configure(enabled)
    try:
        pending = set(enabled)
        while pending:
            stirred.clear()
            left_s = timeout_s - (time.monotonic() - began_s)
            for status in await servers.list_services():
                if status.name in pending and (_is_settled(status) or left_s <= 0):
                    pending.discard(status.name)
                    yield _judge_service(status, took_s=time.monotonic() - began_s)
            if pending:
                await wait_until_set(stirred, max(left_s, 0.0))
    finally:
        await servers.close()
        await store.close()


def _is_settled(status: ServerStatus) -> bool:
    return status.condition.state != "starting" or status.condition.error is not None


def _judge_service(status: ServerStatus, *, took_s: float) -> Finding:
    about, condition = f"MCP {status.name}", status.condition
    if condition.state == "running":
        n_tools = len(status.service.list_definitions())
        what = condition.implementation or "a server without a name"
        return Finding("ok", about, f"{what}, MCP {condition.protocol}: {n_tools} tools after {took_s:.1f} s")
    if condition.error is not None:
        return Finding("fail", about, condition.error, "see docs/mcp.md, Troubleshooting")
    return Finding("fail", about, f"still {condition.state} after {took_s:.0f} s", "try again with --timeout 60")
