"""The store in one SQLite file: the methods of `Store`, on a thread that writes and one that reads.

1. Changes that belong together are one transaction (`gateway.plugins.stores.sqlite.journal_tx`).
2. A durable `write`, and `decide_approval`, `cancel`, `reissue`, `write_late_report`, `put_prompt`, `remember` and
   every deletion, return once they are on disk.
3. Memories that have not changed since they were read cost a look at one number. The event loop reads no file.
"""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, Unpack, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gateway.plugin import (
    Approval,
    ApprovalGroup,
    ApprovalGrouping,
    ApprovalOrder,
    AskBefore,
    AuditLine,
    AuditRow,
    Cancellation,
    Change,
    DecisionResult,
    DecisionWrite,
    Grant,
    Host,
    NarrowedApprovals,
    NarrowedRuns,
    NoteWrite,
    Plugin,
    RunEvent,
    RunPage,
    RunState,
    StoreBacklog,
    StoredPrompt,
    StoredRun,
    StoredService,
    StoredStep,
    StoreError,
    Tally,
    WorkerService,
)

from . import general_tx as kept
from . import journal_statements as journal
from . import journal_tx, response_statements, run_lists
from .connection_thread import SqliteThread, Values
from .file import IN_MEMORY, connect, open_file
from .file_check import SqliteCheck
from .file_guard import SqliteLooks, SqliteWatch
from .hidden_turns import SqliteHiddenTurns
from .journal_statements import build_select
from .journal_tx import APPROVALS, ASKS, AUDIT, EVENTS, GRANTS, RUNS, STEPS
from .keys import SqliteKeys, prune_keys
from .memories import SqliteMemories
from .migrations import MIGRATIONS, Migration
from .quota import SqliteQuota
from .replicas import SqliteReplicas
from .responses import SqliteResponses
from .rows import Rows
from .store_url import SqliteAddress
from .transactions import Lasts, LoggedTransactions, PlainTransactions
from .usage import SqliteUsage

PREFIX = "sqlite:///"
BATCH = 256  # writes in one transaction
CHECK_ENDS_S = 0.5  # for a check in the background, once the store is closed

PROMPTS, SERVICES, TOLD, GROUPS = Rows(StoredPrompt), Rows(StoredService), Rows(WorkerService), Rows(ApprovalGroup)

T = TypeVar("T")


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field("sqlite:///./gateway.db", description="The file: `sqlite:///FILE` or `sqlite:///:memory:`.")

    @field_validator("url")
    @classmethod
    def _names_a_file(cls, url: str) -> str:
        if url.startswith(PREFIX) and url != PREFIX and "\0" not in url:
            return url
        raise ValueError("a SQLite store is named sqlite:///FILE, for example sqlite:///./gateway.db")


class SqliteStore(
    SqliteMemories,
    SqliteHiddenTurns,
    SqliteResponses,
    SqliteKeys,
    SqliteUsage,
    SqliteQuota,
    SqliteReplicas,
):
    """The `gateway.contracts.storage.store.Store` on one file, or in memory. Call `open` first."""

    def __init__(self, place: str, *, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        super().__init__(place)
        self.place = place
        self._migrations = migrations
        self._writer: SqliteThread | None = None
        self._reader: SqliteThread | None = None
        self._watch: SqliteWatch | None = None
        self._looks = SqliteLooks(self._read_loss_reason)
        self._checking: SqliteCheck | None = None

    def __repr__(self) -> str:
        return f"SqliteStore({self.place!r})"

    async def open(self) -> None:
        """Open the store. Raises StoreError if the file cannot be used. You may call `close` right after that, too."""
        self._writer = SqliteThread(self._open_writer, place=self.place, batch=BATCH)
        await self._writer.open()
        self._reader = self._writer
        if self.place != IN_MEMORY:  # where another connection would see another database
            self._reader = SqliteThread(self._open_reader, place=self.place, batch=1)
            await self._reader.open()
        self.open_memories()
        if self._watch is not None and self._watch.is_check_due:
            self._checking = SqliteCheck(self.place, connect=lambda: connect(self.place, mode="ro"))
            self._checking.start()

    def _open_writer(self) -> PlainTransactions:
        connection = open_file(self.place, migrations=self._migrations)
        if self.place == IN_MEMORY:
            return PlainTransactions(connection, begin="BEGIN IMMEDIATE")
        self._watch = SqliteWatch(self.place)
        return LoggedTransactions(connection, watch=self._watch, mark=kept.MARK)

    def _open_reader(self) -> PlainTransactions:
        return PlainTransactions(connect(self.place, mode="ro"), begin="BEGIN")

    async def read_clock(self) -> None:
        return None  # a file has none: its gateways are on one machine

    async def find_loss_reason(self) -> str | None:
        return None if self._watch is None else await self._looks.find_loss_reason()

    async def _read_loss_reason(self) -> str | None:
        watch = self._watch
        return None if watch is None else await self._read(lambda _: watch.find_loss_reason())

    async def close(self) -> None:
        await self.close_hidden()
        self.close_memories()
        if self._checking is not None:
            await asyncio.to_thread(self._checking.close, wait_s=CHECK_ENDS_S)
        self._watch = None
        for thread in (self._reader, self._writer):
            if thread is not None:
                await thread.close()

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> "asyncio.Future[T]":
        return self._require_thread(self._reader).queue_work(work)

    def _write(
        self, work: Callable[[sqlite3.Connection], T], *, lasts: Lasts = Lasts.AS_LONG_AS_THE_SYSTEM
    ) -> "asyncio.Future[T]":
        return self._require_thread(self._writer).queue_work(work, lasts=lasts)

    def _require_thread(self, thread: SqliteThread | None) -> SqliteThread:
        if thread is None:
            raise StoreError(f"the store {self.place!r} is not open")
        return thread

    # Prompts and services.

    async def list_all_prompts(self) -> Sequence[StoredPrompt]:
        return await self._fetch_all(PROMPTS, kept.ALL_PROMPTS, ())

    async def list_prompts(self, *, tenant: str, after: str = "", limit: int) -> Sequence[StoredPrompt]:
        return await self._fetch_all(PROMPTS, kept.PROMPTS, (tenant, after, limit))

    async def get_prompt(self, prompt_id: str, *, tenant: str) -> StoredPrompt | None:
        return await self._fetch_first(PROMPTS, kept.PROMPT, (tenant, prompt_id))

    async def put_prompt(self, prompt_id: str, text: str, *, tenant: str, now_s: float) -> StoredPrompt:
        facts = (prompt_id, tenant, text, now_s)
        return PROMPTS.read_fact(await self._write(lambda c: kept.put_prompt(c, facts), lasts=Lasts.FOR_SURE))

    async def delete_prompt(self, prompt_id: str, *, tenant: str) -> bool:
        return await self._write(lambda c: kept.delete_prompt(c, prompt_id, tenant=tenant), lasts=Lasts.FOR_SURE)

    async def get_generation(self) -> int:
        return int(await self._read(lambda c: c.execute(kept.GENERATION).fetchone()[0]))

    async def list_services(self) -> Sequence[StoredService]:
        found = await self._fetch_all(SERVICES, kept.SERVICES, ())
        return [replace(service, pins=json.loads(str(service.pins))) for service in found]

    async def put_service(self, service: StoredService, *, expected: int) -> bool:
        row = replace(service, pins=json.dumps(dict(service.pins)))  # type: ignore[arg-type]  # as the table has them
        return await self._write(
            lambda c: kept.put_service(c, SERVICES.values(row), expected=expected), lasts=Lasts.FOR_SURE
        )

    async def delete_service(self, name: str) -> bool:
        return await self._write(lambda c: kept.delete_service(c, name), lasts=Lasts.FOR_SURE)

    async def put_definitions(self, definitions: Mapping[str, str]) -> None:
        await self._write(lambda c: kept.put_definitions(c, definitions.items()))

    async def find_definitions(self, sha256s: Sequence[str]) -> Mapping[str, str]:
        return await self._read(lambda c: dict(c.execute(kept.DEFINITIONS, (json.dumps(list(sha256s)),)).fetchall()))

    async def report_services(self, worker: str, services: Sequence[WorkerService]) -> None:
        await self._write(lambda c: kept.report_services(c, worker, map(TOLD.values, services)))

    async def list_reported_services(self, *, since_s: float) -> Sequence[WorkerService]:
        return await self._fetch_all(TOLD, kept.TOLD, (since_s,))

    # Sessions of the console.

    async def get_or_create_secret(self, name: str) -> bytes:
        return await self._write(lambda c: kept.get_or_create_secret(c, name), lasts=Lasts.FOR_SURE)

    async def end_session(self, digest: str, *, until_s: float, now_s: float) -> None:
        await self._write(partial(kept.end_session, digest=digest, until_s=until_s, now_s=now_s), lasts=Lasts.FOR_SURE)

    async def find_ended_sessions(self, digests: Collection[str]) -> Collection[str]:
        return await self._read(partial(kept.find_ended_sessions, digests=digests))

    async def prune(self, *, before_s: float, limit: int) -> int:
        def prune(connection: sqlite3.Connection) -> int:
            gone = journal.prune_runs(connection, before_s=before_s, limit=limit)
            gone += prune_keys(connection, before_s=before_s, limit=limit - gone)
            return gone + response_statements.prune_responses(connection, before_s=before_s, limit=limit - gone)

        return await self._write(prune)

    async def take_duty(self, name: str, *, owner: str, now_s: float, until_s: float) -> bool:
        which = (name, owner, now_s, until_s)
        return await self._write(lambda c: c.execute(journal.TAKE_DUTY, which).rowcount > 0)

    # Runs.

    async def write(self, change: Change) -> None:
        await self._write(partial(journal_tx.write, change=change), lasts=journal_tx.choose_durability(change))

    async def run(self, run_id: str, *, tenant: str) -> StoredRun | None:
        return await self._fetch_first(RUNS, journal.RUN, (tenant, run_id))

    async def list_runs(
        self, *, tenant: str, after: str | None = None, limit: int, **narrowed: Unpack[NarrowedRuns]
    ) -> RunPage:
        wanted = cast("Mapping[str, str | float | None]", narrowed)
        return await self._read(partial(run_lists.list_page, tenant=tenant, wanted=wanted, after=after, limit=limit))

    async def list_runs_by_fingerprint(self, fingerprint: str, *, tenant: str, since_s: float) -> Sequence[StoredRun]:
        return await self._fetch_all(RUNS, journal.RUNS_LIKE, (tenant, fingerprint, since_s))

    async def list_runs_with_key(self, idempotency_key: str, *, tenant: str, caller: str) -> Sequence[StoredRun]:
        return await self._fetch_all(RUNS, journal.RUNS_WITH_KEY, (tenant, caller, idempotency_key))

    async def find_undelivered_run(self, fingerprint: str, *, tenant: str) -> StoredRun | None:
        return await self._fetch_first(RUNS, journal.UNDELIVERED_RUN, (tenant, fingerprint))

    async def mark_delivered(self, fingerprint: str, *, tenant: str, run_id: str) -> None:
        await self._write(lambda c: c.execute(journal.DELIVERED, (tenant, fingerprint, run_id)).rowcount)

    async def note_waiting_request(self, run_id: str, *, tenant: str, waiter: str, until_s: float) -> None:
        await self._write(partial(journal_tx.note_waiting_request, key=(tenant, run_id, waiter), until_s=until_s))

    async def list_steps(self, run_id: str, *, tenant: str) -> Sequence[StoredStep]:
        return await self._fetch_all(STEPS, journal.STEPS, (tenant, run_id))

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
        statement = journal.CLAIMABLE if run_id is None else journal.CLAIMABLE_RUN
        over_s = now_s if over_s is None else over_s
        which = (json.dumps(list(states)), over_s, limit, *(() if run_id is None else (run_id,)))
        taken = partial(journal_tx.claim, statement=statement, values=which, owner=owner, until_s=until_s)
        return await self._write(taken)

    async def renew(self, *, owner: str, run_ids: Sequence[str], now_s: float, until_s: float) -> Sequence[str]:
        del now_s  # leases are compared by the clocks of their owners: they are on this machine
        which = (until_s, owner, json.dumps(list(run_ids)))
        return await self._write(lambda c: [row[0] for row in c.execute(journal.RENEW, which).fetchall()])

    async def release(self, *, owner: str, run_ids: Sequence[str] | None = None) -> int:
        return await self._write(partial(journal_tx.release, owner=owner, run_ids=run_ids))

    async def write_late_report(
        self, step: StoredStep, *, events: Sequence[RunEvent], audit: Sequence[AuditLine]
    ) -> None:
        await self._write(
            partial(journal_tx.write_late_report, step=step, events=events, audit=audit), lasts=Lasts.FOR_SURE
        )

    async def cancel(self, run_id: str, **how: Unpack[Cancellation]) -> bool:
        return await self._write(partial(journal_tx.cancel, run_id=run_id, **how), lasts=Lasts.FOR_SURE)

    # Approvals.

    async def get_approval(self, approval_id: str, *, tenant: str) -> Approval | None:
        return await self._fetch_first(APPROVALS, journal.ONE_APPROVAL, (tenant, approval_id))

    async def list_approvals(
        self,
        *,
        tenant: str,
        order: ApprovalOrder = "oldest",
        after: str | None = None,
        limit: int,
        **narrowed: Unpack[NarrowedApprovals],
    ) -> Sequence[Approval]:
        return await self._fetch_all(
            APPROVALS, *journal.build_approvals_page(tenant, narrowed, order=order, after=after, limit=limit)
        )

    async def list_approval_groups(
        self, *, tenant: str, by: ApprovalGrouping, limit: int, **narrowed: Unpack[NarrowedApprovals]
    ) -> Sequence[ApprovalGroup]:
        return await self._fetch_all(GROUPS, *journal.build_approval_groups(tenant, narrowed, by=by, limit=limit))

    async def tally(self, *, tenant: str) -> Tally:
        return await self._read(partial(run_lists.tally, tenant=tenant))

    async def decide_approval(self, write: DecisionWrite) -> tuple[DecisionResult, Approval | None]:
        return (await self.decide_approvals([write]))[0]

    async def decide_approvals(
        self, writes: Sequence[DecisionWrite]
    ) -> Sequence[tuple[DecisionResult, Approval | None]]:
        return await self._write(partial(journal_tx.decide_approval, writes=writes), lasts=Lasts.FOR_SURE)

    async def note_approval(self, write: NoteWrite) -> Approval | None:
        return await self._write(partial(journal_tx.note_approval, write=write), lasts=Lasts.FOR_SURE)

    async def reissue(self, old_id: str, approval: Approval, *, events: Sequence[RunEvent]) -> bool:
        reissue = partial(journal_tx.reissue, old_id=old_id, approval=approval, events=events)
        return await self._write(reissue, lasts=Lasts.FOR_SURE)

    async def expire(self, *, now_s: float, limit: int) -> Sequence[Approval]:
        return await self._write(partial(journal_tx.expire, now_s=now_s, limit=limit))

    async def count_backlog(self, *, stuck_before_s: float) -> StoreBacklog:
        return await self._read(partial(run_lists.count_backlog, stuck_before_s=stuck_before_s))

    # Grants, and conversations that ask before every call.

    async def list_grants(self, *, tenant: str, now_s: float, after: str | None = None, limit: int) -> Sequence[Grant]:
        if after is None:
            return await self._fetch_all(GRANTS, journal.GRANTS, (tenant, now_s, limit))
        return await self._fetch_all(GRANTS, journal.GRANTS_BEHIND, (tenant, now_s, tenant, after, limit))

    async def grant(
        self,
        *,
        tenant: str,
        caller: str,
        user: str | None,
        run_id: str,
        conversation: str | None,
        sha256: str,
        now_s: float,
    ) -> Grant | None:
        which = (tenant, now_s, caller, sha256, run_id, conversation, user)
        return await self._fetch_first(GRANTS, journal.ONE_GRANT, which)

    async def grant_by_id(self, grant_id: str, *, tenant: str) -> Grant | None:
        return await self._fetch_first(GRANTS, journal.GRANT_BY_ID, (tenant, grant_id))

    async def delete_grant(self, grant_id: str, *, tenant: str, audit: Sequence[AuditLine]) -> bool:
        return await self._revoke(journal.DELETE_GRANT, (tenant, grant_id), audit)

    async def put_ask(self, ask: AskBefore) -> None:
        await self._write(lambda c: c.execute(journal.ADD_ASK, ASKS.values(ask)).rowcount, lasts=Lasts.FOR_SURE)

    async def list_asks(
        self, *, tenant: str, now_s: float, after: str | None = None, limit: int
    ) -> Sequence[AskBefore]:
        if after is None:
            return await self._fetch_all(ASKS, journal.ASKS, (tenant, now_s, limit))
        return await self._fetch_all(ASKS, journal.ASKS_BEHIND, (tenant, now_s, tenant, after, limit))

    async def ask_by_id(self, ask_id: str, *, tenant: str) -> AskBefore | None:
        return await self._fetch_first(ASKS, journal.ASK_BY_ID, (tenant, ask_id))

    async def delete_ask(self, ask: AskBefore, *, audit: Sequence[AuditLine]) -> bool:
        return await self._revoke(journal.DELETE_ASK, (ask.tenant, ask.id), audit)

    async def _revoke(self, statement: str, values: Values, audit: Sequence[AuditLine]) -> bool:
        revoke = partial(journal_tx.execute_audited, statement=statement, values=values, audit=audit)
        return await self._write(revoke, lasts=Lasts.FOR_SURE)

    # Events and the audit log.

    async def list_events(
        self, *, after: int, tenant: str | None = None, run_id: str | None = None, limit: int
    ) -> Sequence[RunEvent]:
        columns = {"tenant": tenant, "run_id": run_id}
        return await self._fetch_all(
            EVENTS, *build_select(journal.EVENTS, after, columns, order=journal.IN_ORDER, limit=limit)
        )

    async def get_last_event(self) -> int:
        return await self._read(lambda c: next((int(row[0]) for row in c.execute(journal.LAST_EVENT)), 0))

    async def audit(self, *, after: int, limit: int) -> Sequence[AuditRow]:
        which = (after, limit)
        return await self._read(
            lambda c: [
                AuditRow(n, AUDIT.read_fact(line), hash_) for n, *line, hash_ in c.execute(journal.AUDIT_ROWS, which)
            ]
        )


def build(config: Config, _host: Host) -> SqliteStore:
    return SqliteStore(config.url.removeprefix(PREFIX))


PLUGIN = Plugin(Config, build, address=SqliteAddress)
