"""The store behind `bench.growth_console`: a few runs of a real gateway, copied until there are as many as wanted.

All copies belong to one tenant. They differ in id, time, caller, conversation, workflow and state. Of 1,000,000 runs
50,000 are of workflows, 100,000 have an approval, 1,000 wait for a person, and the others have ended or are stuck.
"""

import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.contracts.storage.audit_chain import FIRST_HASH, link
from gateway.contracts.storage.journal import AskBefore, Grant
from gateway.contracts.storage.store import get_memory_owner
from gateway.plugins.stores.sqlite import journal_statements as journal
from gateway.plugins.stores.sqlite import journal_tx as transactions
from gateway.plugins.stores.sqlite import memory_statements as memories_sql
from gateway.plugins.stores.sqlite.file import open_file
from gateway.plugins.stores.sqlite.migrations import MIGRATIONS
from gateway.plugins.stores.sqlite.rows import Rows

TENANT: Final = "team"
#: The oldest run is so old: younger than what pruning deletes.
AGE_S: Final = 20 * 86400.0
BATCH: Final = 50_000
#: Half of the runs of these conversation and caller are what a person looks for; the rare caller has few runs.
LONG_CONVERSATION, CALLER, RARE_CALLER, WORKFLOWS = "long", "caller1", "rare", 20
USER: Final = "ann"
_ASKS: Final = Rows(AskBefore)


@dataclass(frozen=True, slots=True)
class Templates:
    """The ids of the runs that are copied, by what they are; of `long`, which has many steps, there is one."""

    plain: str
    steps: str
    approved: str
    pending: str
    workflow: str
    long: str


#: One row for each copy. Of a thousand runs one waits for a person, a hundred have an approval, fifty are of workflows.
_WANTED: Final = f"""
    CREATE TEMP TABLE wanted AS WITH RECURSIVE numbers (n) AS (SELECT :first UNION ALL
        SELECT n + 1 FROM numbers WHERE n + 1 < :end)
    SELECT n, 'run_' || lower(hex(randomblob(12))) AS run_id, 'ap_' || lower(hex(randomblob(12))) AS approval_id,
        lower(hex(randomblob(32))) AS sha256, :begin_s + n * :step_s AS at_s,
        CASE WHEN n % 9973 = 0 THEN '{RARE_CALLER}' ELSE 'caller' || (n % 40) END AS caller,
        CASE WHEN n % 100 = 33 THEN '{LONG_CONVERSATION}' ELSE 'conversation' || (n / 5) END AS conversation,
        CASE WHEN n % 20 = 0 THEN 'flow' || (n / 20 % {WORKFLOWS}) END AS workflow,
        CASE WHEN n % 20 = 0 THEN :workflow WHEN n % 1000 = 1 THEN :pending WHEN n % 10 = 1 THEN :approved
            WHEN n % 10 = 2 THEN :steps ELSE :plain END AS template,
        CASE WHEN n % 1000 = 1 THEN 'awaiting_approval' WHEN n % 5000 = 17 THEN 'awaiting_client'
            WHEN n % 5000 = 18 THEN 'unknown' WHEN n % 100 < 4 THEN 'failed' WHEN n % 100 < 6 THEN 'cancelled'
            WHEN n % 100 = 6 THEN 'rejected' WHEN n % 100 = 7 THEN 'expired' WHEN n % 100 = 8 THEN 'interrupted'
            ELSE 'completed' END AS state
    FROM numbers"""
#: By table: the column of the run's id, and what a copy has of its own. Other columns are the template's.
_COPIED: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "runs": (
        "id",
        {
            "id": "w.run_id",
            "fingerprint": "w.run_id",
            "idempotency_key": "NULL",
            "caller": "w.caller",
            "conversation": "w.conversation",
            "workflow": "w.workflow",
            "state": "w.state",
            "created_s": "w.at_s",
            "updated_s": "w.at_s + 3",
            "owner": "NULL",
            "lease_s": "0",
            "pending": "0",  # a trigger counts them
        },
    ),
    "requests": ("run_id", {"run_id": "w.run_id"}),
    "steps": (
        "run_id",
        {
            "run_id": "w.run_id",
            "approval_id": "CASE WHEN t.approval_id IS NOT NULL THEN w.approval_id END",
            "sha256": "w.sha256",
            "started_s": "w.at_s + 1 + t.number",
            "finished_s": "w.at_s + 2 + t.number",
        },
    ),
    "approvals": (
        "run_id",
        {
            "id": "w.approval_id",
            "run_id": "w.run_id",
            "caller": "w.caller",
            "conversation": "w.conversation",
            "sha256": "w.sha256",
            "created_s": "w.at_s",
            "expires_s": "t.expires_s + w.n * 1e-3",
            "decided_s": "CASE WHEN t.decided_s IS NOT NULL THEN w.at_s + 2 END",
        },
    ),
    "events": ("run_id", {"run_id": "w.run_id", "created_s": "w.at_s", "seq": "NULL"}),
}


def fill(place: Path, templates: Templates, runs: int) -> None:
    """Copy the templates until there are so many runs, and add the rest of what pages show."""
    now_s = time.time()
    names = {"plain", "steps", "approved", "pending", "workflow"}
    values = {name: getattr(templates, name) for name in names}
    with closing(open_file(str(place), migrations=MIGRATIONS)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -2000000")
        for first in range(0, runs, BATCH):
            step = {"first": first, "end": min(first + BATCH, runs)}
            times = {"begin_s": now_s - AGE_S, "step_s": (AGE_S - 60) / runs}
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DROP TABLE IF EXISTS wanted")
            connection.execute(_WANTED, {**values, **step, **times})
            for table, (name, own) in _COPIED.items():
                _copy(connection, table, name, own)
            connection.execute("COMMIT")
        _audit(connection, runs * 2 // 5)
        _add_memories(connection, max(runs // 100, 10))
        _add_rest(connection, max(runs // 1000, 10))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _copy(connection: sqlite3.Connection, table: str, name: str, own: Mapping[str, str]) -> None:
    columns = [f'"{row[1]}"' for row in connection.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(own.get(column.strip('"'), f"t.{column}") for column in columns)
    connection.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM wanted AS w CROSS JOIN {table} AS t "
        f"ON t.tenant = '{TENANT}' AND t.{name} = w.template ORDER BY w.n"
    )


def _audit(connection: sqlite3.Connection, lines: int) -> None:
    """Add lines to the audit log, each chained to the one before."""
    seq, before = connection.execute(journal.LAST_AUDIT).fetchone() or (0, FIRST_HASH)
    names = [column.strip('"') for column in journal.AUDIT]
    rows = []
    for number in range(seq + 1, seq + 1 + lines):
        values = (TENANT, CALLER, f"run_{number}", 0, "step.decided", "file_operations", "0" * 64, "auto", "whitelist")
        line = dict(zip(names, (*values, "reads", "", "", 1e9 + number), strict=True))
        before = link(before, line)
        rows.append((number, *line.values(), before))
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(journal.ADD_AUDIT, rows)
    connection.execute("COMMIT")


def _add_memories(connection: sqlite3.Connection, count: int) -> None:
    owner = get_memory_owner(user=USER, key="")
    connection.execute("BEGIN IMMEDIATE")
    for number in range(count):
        text = f"It is remembered that the number {number} was chosen by word{number % 997} for word{number % 89}."
        row = (f"mem_{os.urandom(12).hex()}", TENANT, owner, None, text, time.time())
        memories_sql.remember(connection, row, limit=count)
    connection.execute("COMMIT")


def _add_rest(connection: sqlite3.Connection, count: int) -> None:
    """Add prompts, grants, and conversations that ask before each call."""
    now_s = time.time()
    connection.execute("BEGIN IMMEDIATE")
    for number in range(count):
        prompt = (TENANT, f"prompt{number:05}", f"You are assistant {number}. " * 20, 1, now_s)
        connection.execute("INSERT INTO prompts VALUES (?, ?, ?, ?, ?)", prompt)
        whose = {"tenant": TENANT, "caller": CALLER, "conversation": f"conversation{number}"}
        times = {"created_s": now_s - number, "expires_s": now_s + 86400}
        hashes = dict.fromkeys(("sha256", "definition_sha256", "policy_sha256"), f"{number:064x}")
        grant = Grant(
            id=f"gr_{number:024x}", run_id=None, tool="file_operations", granted_by=CALLER, **whose, **times, **hashes
        )
        connection.execute(journal.ADD_GRANT, transactions.GRANTS.values(grant))
        connection.execute(journal.ADD_ASK, _ASKS.values(AskBefore(id=f"ask_{number:024x}", **whose, **times)))
    connection.execute("COMMIT")
