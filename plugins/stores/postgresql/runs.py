"""Runs in PostgreSQL: their changes, leases and lists; the functions stand in sql/runs.sql.

A time of a lease is the database's: a caller's `now_s` and `until_s` say how long it lasts.
"""

# ruff: noqa: S608 - what is put together here are constants of this file, and names of columns

from collections.abc import Sequence
from typing import Final, Unpack

from gateway.plugin import (
    AWAITED_S,
    FAR_S,
    Approval,
    AuditLine,
    Cancellation,
    Change,
    RunEvent,
    RunState,
    StoredRun,
    StoredStep,
)

from .base import PostgresqlBase, list_json, to_json
from .change_batches import WRITE_CHANGES, ChangeBatches
from .rows import PostgresqlRows

RUNS, STEPS, APPROVALS = PostgresqlRows(StoredRun), PostgresqlRows(StoredStep), PostgresqlRows(Approval)
EVENTS, AUDIT = PostgresqlRows(RunEvent), PostgresqlRows(AuditLine)

#: Parts of a run that are no JSON: they are parameters of their own.
_BLOBS: Final = ("request", "progress", "answer")


def _select_runs(run: str, **parts: str) -> str:
    """Return the columns of a run, some of them as given."""
    return ", ".join(f'{parts[name]} AS "{name}"' if name in parts else f'{run}."{name}"' for name in RUNS.names)


_REQUEST: Final = "coalesce(q.request, '')"
_RUNS: Final = f"""SELECT {_select_runs("r", request=_REQUEST)} FROM twolane.runs r
    LEFT JOIN twolane.requests q ON q.tenant = r.tenant AND q.run_id = r.id WHERE r.tenant = $1"""
_RUN: Final = f"{_RUNS} AND r.id = $2"
_RUNS_LIKE: Final = f"{_RUNS} AND r.fingerprint = $2 AND r.updated_s >= $3 ORDER BY r.created_s DESC, r.id DESC"
_RUNS_WITH_KEY: Final = f"""{_RUNS} AND r.caller = $2 AND r.idempotency_key IS NOT NULL
    AND twolane.digest(r.idempotency_key) = twolane.digest($3)
    ORDER BY r.holds_key NULLS LAST, r.created_s DESC, r.id DESC"""
_UNDELIVERED_RUN: Final = f"""{_RUNS} AND r.id = (SELECT u.run_id FROM twolane.undelivered u
    WHERE u.tenant = $1 AND u.fingerprint = $2)"""
_CLAIM: Final = f"""SELECT {_select_runs("(c.run)", request="coalesce(c.request, '')")}
    FROM twolane.claim_runs($1, $2, $3, $4, $5, $6, $7, $8, $9) c"""
_STEPS: Final = f"SELECT {STEPS.list_columns()} FROM twolane.steps WHERE tenant = $1 AND run_id = $2 ORDER BY number"
#: Columns of a run in a list: without what may be large.
LISTED: Final = _select_runs("r", request="''::bytea", progress="NULL::bytea", answer="NULL::bytea")


class PostgresqlRuns(PostgresqlBase):
    """The methods of the store for runs and their steps, but for their lists."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self._changes = ChangeBatches(self._write)

    async def write(self, change: Change) -> None:
        run = change.run
        facts = {name: value for name, value in RUNS.to_json(run).items() if name not in _BLOBS}
        flags = {
            "is_new": change.new,
            "repeats": change.repeats,
            "takes_key_of": change.takes_key_of,
            "replaces_request": change.request is not None,
            "passes_on": change.passes_on,
            "asks_once": change.asks_once,
            "awaited_s": AWAITED_S if change.new else None,
        }
        moves = [{"approval_id": move.approval_id, "expected": move.expected, "to": move.to} for move in change.moves]
        steps = {step.number: step for step in change.steps}
        values = (
            to_json(facts),
            run.progress,
            run.answer,
            (run.request if change.request is None else change.request)
            if change.new or change.request is not None
            else None,
            to_json(flags),
            list_json(STEPS, list(steps.values())),
            list_json(APPROVALS, change.approvals),
            to_json(moves) if moves else None,
            list_json(EVENTS, change.events),
            list_json(AUDIT, change.audit),
        )
        if change.new or change.approvals:
            # It may wait for another run, for a key or a call that both have, and a batch would wait with it.
            await self._write(WRITE_CHANGES, *([value] for value in values))
        else:
            await self._changes.write_change((run.tenant, run.id), values)

    async def run(self, run_id: str, *, tenant: str) -> StoredRun | None:
        return await self._fetch_first(RUNS, _RUN, tenant, run_id)

    async def list_runs_by_fingerprint(self, fingerprint: str, *, tenant: str, since_s: float) -> Sequence[StoredRun]:
        return await self._fetch_all(RUNS, _RUNS_LIKE, tenant, fingerprint, since_s)

    async def list_runs_with_key(self, idempotency_key: str, *, tenant: str, caller: str) -> Sequence[StoredRun]:
        return await self._fetch_all(RUNS, _RUNS_WITH_KEY, tenant, caller, idempotency_key)

    async def find_undelivered_run(self, fingerprint: str, *, tenant: str) -> StoredRun | None:
        return await self._fetch_first(RUNS, _UNDELIVERED_RUN, tenant, fingerprint)

    async def mark_delivered(self, fingerprint: str, *, tenant: str, run_id: str) -> None:
        await self._call("mark_delivered", tenant, fingerprint, run_id)

    async def note_waiting_request(self, run_id: str, *, tenant: str, waiter: str, until_s: float) -> None:
        await self._call("await_run", tenant, run_id, waiter, until_s)

    async def list_steps(self, run_id: str, *, tenant: str) -> Sequence[StoredStep]:
        return await self._fetch_all(STEPS, _STEPS, tenant, run_id)

    async def claim(
        self,
        *,
        owner: str,
        now_s: float,
        until_s: float,
        states: Sequence[RunState],
        run_id: str | None,
        limit: int,
        over_s: float | None = None,
    ) -> Sequence[StoredRun]:
        over_s = now_s if over_s is None else over_s
        slack_s = None if over_s == 0 else now_s - over_s
        rows = await self._write(_CLAIM, owner, until_s - now_s, slack_s, FAR_S, list(states), run_id, limit)
        return [RUNS.from_row(row) for row in rows]

    async def renew(self, *, owner: str, run_ids: Sequence[str], now_s: float, until_s: float) -> Sequence[str]:
        return [row[0] for row in await self._call("renew_runs", owner, list(run_ids), until_s - now_s)]

    async def release(self, *, owner: str, run_ids: Sequence[str] | None = None) -> int:
        return int(await self._call_value("release_runs", owner, None if run_ids is None else list(run_ids)))

    async def write_late_report(
        self, step: StoredStep, *, events: Sequence[RunEvent], audit: Sequence[AuditLine]
    ) -> None:
        which = (step.tenant, step.run_id, step.number, step.late)
        await self._call("note_late", *which, list_json(EVENTS, events), list_json(AUDIT, audit))

    async def cancel(self, run_id: str, **how: Unpack[Cancellation]) -> bool:
        events, audit = list_json(EVENTS, how["events"]), list_json(AUDIT, how["audit"])
        which = (how["tenant"], run_id, how["now_s"], how.get("waiter"))
        return bool(await self._call_value("cancel_run", *which, events, audit))
