"""The store in a database server: its schema, its clock, its connections, and what gateways on it share."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final

from gateway.cli.doctor.findings import Finding
from gateway.config import LoadedConfig
from gateway.contracts.storage.store import ServerAddress, ServerState, StoreError
from gateway.features.limits.service_sharing import shares_limits
from gateway.registry.stores import get_store_address

#: As gateways log it: they go by the clock of the store.
_SKEW_S: Final = 1.0


async def examine_store(loaded: LoadedConfig) -> AsyncIterator[Finding]:
    """Yield what the server of the store has for this gateway and others. It is only read."""
    settings = loaded.settings
    address = get_store_address(settings, folder=loaded.folder)
    if not isinstance(address, ServerAddress):
        return
    try:
        state = await asyncio.to_thread(address.read_state)
    except StoreError as error:
        advice = "start the server, or change `store`: a start waits `store_wait` for it (docs/operations.md)"
        yield Finding("fail", "store", f"{address.redacted_url}: {error}", advice)
        return
    for finding in judge_state(
        state,
        place=address.redacted_url,
        needed=settings.workers * address.connections,
        shares=shares_limits(settings),
    ):
        yield finding


def judge_state(state: ServerState, *, place: str, needed: int, shares: bool) -> Iterator[Finding]:
    """Yield what the state means for a gateway that takes `needed` connections; `shares`: it shares limits."""
    yield _judge_schema(state, place=place)
    yield _judge_clock(state)
    yield _judge_connections(state, needed=needed)
    yield _describe_sharing(state, shares=shares)


def _judge_schema(state: ServerState, *, place: str) -> Finding:
    if state.schema_problem is not None:
        return Finding("fail", "store", f"{place}: {state.schema_problem}")
    if not state.schema_version:
        return Finding("ok", "store", f"{place}: not made yet, the first start makes it")
    version = f"{place}: version {state.schema_version} of the schema"
    if state.schema_version < state.known_version:
        text = f"{version}; this gateway makes it {state.known_version} at its start, and older ones go on"
        return Finding("ok", "store", text)
    if state.schema_version > state.known_version:
        advice = "upgrade this gateway, too (docs/runbook.md)"
        return Finding("warn", "store", f"{version}, which a newer gateway made; this one can use it", advice)
    return Finding("ok", "store", version)


def _judge_clock(state: ServerState) -> Finding:
    ahead_s = -state.clock_ahead_s
    if abs(ahead_s) < _SKEW_S:
        return Finding("ok", "clock of the store", f"within {_SKEW_S:.0f} s of this machine's")
    side = "ahead of" if ahead_s > 0 else "behind"
    text = f"this machine is {abs(ahead_s):.0f} s {side} it, and gateways go by it"
    return Finding("warn", "clock of the store", text, "synchronize the clocks of both machines (NTP)")


def _judge_connections(state: ServerState, *, needed: int) -> Finding:
    text = f"a gateway takes {needed}, of {state.connection_limit} that the server has"
    if needed > state.connection_limit:
        advice = "lower `pool` in the URL of the store, or raise max_connections of the server"
        return Finding("fail", "store connections", text, advice)
    return Finding("ok", "store connections", f"{text}: up to {state.connection_limit // needed} gateways")


def _describe_sharing(state: ServerState, *, shares: bool) -> Finding:
    """Say what is counted together, and by how many gateways: those without limits and budgets leave no trace."""
    if not shares:
        return Finding("ok", "shared limits", "each gateway counts limits for itself, as `limits.shared` is false")
    return Finding("ok", "shared limits", f"counted together by all gateways on this store; {state.gateways} do now")
