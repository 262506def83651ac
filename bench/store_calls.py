"""The cost of calls that gateways make beside the steps of their runs: events, audit lines, shares of limits.

    python -m bench.store_calls postgresql://owner@127.0.0.1/postgres
    python -m bench.store_calls postgresql://owner@127.0.0.1/postgres --valkey valkey://127.0.0.1:6379/0 --process 4242

The CPU is that of the server, whose processes are on this machine, and of this process, which stands for a gateway. The
database is not emptied afterwards. `--process` is the one of the Valkey server.
"""

import argparse
import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from bench import kernel
from bench.fleet import DatabaseServer
from gateway.contracts.storage.audit_chain import AuditLine
from gateway.contracts.storage.journal import Change, RunEvent, StoredRun
from gateway.contracts.storage.quota import QuotaStore, ShareRequest
from gateway.contracts.storage.store import Store
from gateway.limits.valkey_quota import ValkeyQuota
from gateway.registry.loader import build_plugin
from gateway.registry.stores import resolve_store

#: Events and audit lines of one look; gateways that share, and the limits of one call.
BACKLOGS: Final = (20, 200)
GATEWAYS, LIMITS = 50, (1, 10, 100)
REPEATS: Final = 20


async def print_cost(what: str, work: Callable[[], Awaitable[object]], *, times: int, processes: Sequence[int]) -> None:
    """Print what one of so many pieces of work costs, which `work` does all at once."""
    server_s, own_s, began_s = kernel.cpu_s(list(processes)), time.process_time(), time.perf_counter()
    await work()
    own_s, took_s = time.process_time() - own_s, time.perf_counter() - began_s
    server_s = kernel.cpu_s(list(processes)) - server_s
    print(
        f"{what:<40} server {1e6 * server_s / times:>8.1f} us  gateway {1e6 * own_s / times:>8.1f} us  "
        f"wall {1e6 * took_s / times:>8.1f} us"
    )


async def measure_records(store: Store, server: DatabaseServer) -> None:
    """Print the cost of an event and of an audit line: to number and to seal it, and to read it."""
    seen = await store.get_last_event()
    for backlog in BACKLOGS:
        for _ in range(3):
            await store.write(_build_change(backlog))
        await print_cost(
            f"number {3 * backlog} events, one", store.last_event, times=3 * backlog, processes=server.processes
        )
        await print_cost(
            f"seal {3 * backlog} audit lines, one",
            lambda: store.audit(after=1 << 40, limit=1),
            times=3 * backlog,
            processes=server.processes,
        )

    async def read_events() -> None:
        await store.list_events(after=seen, limit=500)

    await print_cost("read 500 events, one", read_events, times=500, processes=server.processes)

    async def find_no_events() -> None:
        for _ in range(100):
            await store.list_events(after=1 << 40, limit=500)

    await print_cost("look for events, none", find_no_events, times=100, processes=server.processes)


def _build_change(count: int) -> Change:
    now_s = time.time()
    run = StoredRun(
        id=f"run_{secrets.token_hex(8)}",
        tenant="bench",
        caller="bench",
        chain="assistant",
        fingerprint="f" * 64,
        state="running",
        effects=True,
        created_s=now_s,
        updated_s=now_s,
        request=b"{}",
        progress=b"{}",
        owner="bench",
        lease_s=now_s + 5.0,
    )
    event = RunEvent(tenant="bench", run_id=run.id, type="step.started", data=b'{"step":1}', created_s=now_s)
    line = AuditLine(
        tenant="bench", caller="bench", run_id=run.id, step=1, event="started", decision="run", created_s=1.0
    )
    return Change(run=run, new=True, events=(event,) * count, audit=(line,) * count)


async def measure_shares(place: QuotaStore, name: str, processes: Callable[[], Sequence[int]]) -> None:
    """Print the cost of a call about shares of limits, of which fifty gateways have some."""
    turn = 0
    for count in LIMITS:
        requests = [
            ShareRequest(name=f"key {at}", limit=10**6, held=10, used=5, wanted=20, needed=0, lapse_s=61.0)
            for at in range(count)
        ]

        async def call(times: int, requests: Sequence[ShareRequest] = requests) -> None:
            nonlocal turn
            for number in range(times):
                turn += 1
                await place.share_quota(f"gateway {number}", requests, turn=turn, now_s=0.0)

        await call(GATEWAYS)
        await print_cost(
            f"{name}: shares of {count} limits", lambda: call(REPEATS), times=REPEATS, processes=processes()
        )


async def measure(url: str, *, valkey: str | None, process: int) -> None:
    server = DatabaseServer(url)
    await server.prepare()
    name, address = resolve_store(url, folder=Path(), plugins=None)
    store: Store = build_plugin("stores", name, {"url": address.url}, None)
    await store.open()
    await measure_records(store, server)
    await measure_shares(store, "PostgreSQL", lambda: server.processes)
    await store.close()
    if valkey is not None:
        quota = ValkeyQuota(valkey)
        await measure_shares(quota, "Valkey", lambda: [process])
        await quota.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", metavar="URL")
    parser.add_argument("--valkey", metavar="URL")
    parser.add_argument("--process", type=int, default=0)
    args = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}")
    asyncio.run(measure(args.url, valkey=args.valkey, process=args.process))


if __name__ == "__main__":
    main()
