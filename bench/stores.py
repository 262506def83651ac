"""The cost of a durable step of a run in each store: commits a second, CPU of this process, latency.

    python -m bench.stores sqlite:////tmp/a.db postgresql://me@db/gateway --runs 1 8

A step is two writes, as the agent loop makes them: `started` before the effect, the result behind it. Each store is
measured with so many runs at the same time. The stores should be empty, and are not emptied afterwards.
"""

import argparse
import asyncio
import itertools
import os
import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.contracts.storage.audit_chain import AuditLine
from gateway.contracts.storage.journal import Change, RunEvent, StoredRun, StoredStep
from gateway.contracts.storage.store import Store
from gateway.registry.loader import build_plugin
from gateway.registry.stores import resolve_store

#: Bytes of the progress of a run, which each write replaces.
PROGRESS = 2000


@dataclass(frozen=True, slots=True)
class StepCost:
    """The cost of one measurement; `cpu_ms` is this process's for one write."""

    writes_per_s: float
    cpu_ms: float
    p50_ms: float
    p99_ms: float


async def drive_run(store: Store, run_id: str, *, until_s: float) -> list[float]:
    """Write steps of one run until then, and return how long each write took."""
    now_s = time.time()
    run = StoredRun(
        id=run_id,
        tenant="bench",
        caller="bench",
        chain="assistant",
        fingerprint="f" * 64,
        state="running",
        effects=True,
        created_s=now_s,
        updated_s=now_s,
        request=b'{"messages":[]}',
        progress=b"{}".ljust(PROGRESS),
        owner="bench",
        lease_s=now_s + 5.0,
    )
    await store.write(Change(run=run, new=True))
    took_s = []
    number = 0
    while (began_s := time.perf_counter()) < until_s:
        await store.write(_build_step(run, number // 2, number % 2 == 1))
        took_s.append(time.perf_counter() - began_s)
        number += 1
    await store.write(Change(run=replace(run, state="completed", owner=None, lease_s=0.0)))
    return took_s


def _build_step(run: StoredRun, number: int, is_finished: bool) -> Change:
    step = StoredStep(
        run_id=run.id,
        tenant=run.tenant,
        number=number,
        round=number,
        call_id=f"call_{number}",
        tool="execute_command",
        model_name="execute_command",
        arguments='{"command":"make"}',
        sha256="a" * 64,
        terminate=False,
        decision="run",
        basis="default",
        rule="harmless",
        state="finished" if is_finished else "started",
        result="y" * 500 if is_finished else None,
    )
    kind = "step.finished" if is_finished else "step.started"
    event = RunEvent(tenant=run.tenant, run_id=run.id, type=kind, data=b'{"step":1}', created_s=run.created_s)
    line = AuditLine(
        tenant=run.tenant, caller=run.caller, run_id=run.id, step=number, event="started", decision="run", created_s=1.0
    )
    return Change(run=run, durable=not is_finished, steps=(step,), events=(event,), audit=(line,))


async def measure_store(store: Store, *, runs: int, seconds: float) -> StepCost:
    name = secrets.token_hex(4)
    began_s, cpu_s = time.perf_counter(), time.process_time()
    driven = await asyncio.gather(
        *(drive_run(store, f"{name}_{number}", until_s=began_s + seconds) for number in range(runs))
    )
    took_s = sorted(itertools.chain.from_iterable(driven))
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    return StepCost(
        writes_per_s=len(took_s) / wall_s,
        cpu_ms=1000 * cpu_s / len(took_s),
        p50_ms=1000 * took_s[len(took_s) // 2],
        p99_ms=1000 * took_s[len(took_s) * 99 // 100],
    )


async def measure_url(url: str, *, runs: list[int], seconds: float) -> None:
    name, address = resolve_store(url, folder=Path(), plugins=None)
    store: Store = build_plugin("stores", name, {"url": address.url}, None)
    await store.open()
    for count in runs:
        cost = await measure_store(store, runs=count, seconds=seconds)
        print(
            f"{name:<12}{count:>5} runs {cost.writes_per_s:>9.0f} writes/s  {cost.cpu_ms:.2f} ms CPU a write  "
            f"p50 {cost.p50_ms:.1f} ms  p99 {cost.p99_ms:.1f} ms"
        )
    await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="+", metavar="URL")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each measurement")
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 8, 64], help="at the same time")
    args = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}")
    for url in args.urls:
        asyncio.run(measure_url(url, runs=args.runs, seconds=args.seconds))


if __name__ == "__main__":
    main()
