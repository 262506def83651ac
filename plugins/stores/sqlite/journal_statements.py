"""The statements of the SQLite store on the tables of the journal (`migrations` makes them).

Columns stand in the order of the dataclass whose rows they are. Every key begins with the tenant. Only queries of an
owner or a clock go over all tenants.
"""

# ruff: noqa: S608 - what is put together here are constants of this file, and names of columns

import json
import sqlite3
from collections.abc import Mapping, Sequence

from gateway.plugin import FAR_S, ApprovalGrouping, ApprovalOrder

#: Whether something may follow the state of a run, in the words of the partial indexes, which fit no other words.
ALIVE = "(state = 'running' OR state = 'awaiting_approval' OR state = 'awaiting_client' OR state = 'unknown')"
ENDED = """(state = 'completed' OR state = 'rejected' OR state = 'expired' OR state = 'failed' OR state = 'interrupted'
    OR state = 'cancelled')"""


def _build_insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def _split_words(text: str) -> Sequence[str]:
    return tuple(text.replace(",", " ").split())


def build_select(
    select: str,
    first: str | int,
    columns: Mapping[str, str | None],
    *,
    order: str,
    limit: int,
) -> tuple[str, Sequence[str | int]]:
    """Return a statement and its values: `select` with its first value, narrowed by the columns that are not None."""
    given = {column: value for column, value in columns.items() if value is not None}
    conditions = "".join(f" AND {column} = ?" for column in given)
    return f"{select}{conditions} ORDER BY {order} LIMIT ?", (first, *given.values(), limit)


OLDEST_FIRST, NEWEST_FIRST, IN_ORDER = "created_s, rowid", "created_s DESC, rowid DESC", "seq"

# Runs.

#: What a run begins with; what of it changes; where it is.
NEW_RUN = _split_words("""id, tenant, caller, kind, chain, conversation, fingerprint, idempotency_key, state, effects,
    created_s, updated_s, progress, answer, error_code, error, owner, lease_s, fence, workflow,
    tool, client""")
CHANGED_RUN = _split_words(
    "state, effects, updated_s, progress, answer, error_code, error, owner, lease_s, tenant, id, fence"
)
ADD_RUN = _build_insert("runs", NEW_RUN) + " ON CONFLICT (tenant, id) DO NOTHING"
ADD_REQUEST = _build_insert("requests", ("tenant", "run_id", "request"))
PUT_REQUEST = "UPDATE requests SET request = ? WHERE tenant = ? AND run_id = ?"
#: The lease may have been renewed since its owner read the run: it is only given up, never shortened.
PUT_RUN = f"""UPDATE runs SET state = ?1, effects = ?2, updated_s = ?3, progress = ?4, answer = ?5, error_code = ?6,
    error = ?7, owner = ?8, lease_s = CASE WHEN ?8 IS NULL THEN ?9 ELSE max(lease_s, ?9) END
    WHERE tenant = ?10 AND id = ?11 AND fence = ?12 AND {ALIVE}"""
#: The same for a run that goes on as it was, with its owner: SQLite writes the indexes of all columns that are set.
PUT_RUN_ON = """UPDATE runs SET effects = ?2, updated_s = ?3, progress = ?4, answer = ?5, error_code = ?6, error = ?7,
    lease_s = max(lease_s, ?9) WHERE tenant = ?10 AND id = ?11 AND fence = ?12 AND state = ?1 AND owner = ?8"""


def _build_runs_query(*, request: str, progress: str, answer: str) -> str:
    return f"""SELECT id, tenant, caller, kind, chain, conversation, fingerprint, idempotency_key, state, effects,
        created_s, updated_s, {request} AS request, {progress} AS progress, {answer} AS answer, error_code, error,
        owner, lease_s, fence, workflow, tool, client FROM runs"""


RUNS = (
    _build_runs_query(
        request="coalesce((SELECT request FROM requests q WHERE q.tenant = runs.tenant AND q.run_id = runs.id), x'')",
        progress="progress",
        answer="answer",
    )
    + " WHERE tenant = ?"
)
#: Without what may be large: request, progress and answer.
RUN_LISTED = _build_runs_query(request="x''", progress="NULL", answer="NULL") + " WHERE rowid = ?"
RUN = RUNS + " AND id = ?"
RUNS_LIKE = f"{RUNS} AND fingerprint = ? AND updated_s >= ? ORDER BY {NEWEST_FIRST}"
RUNS_WITH_KEY = f"{RUNS} AND caller = ? AND idempotency_key = ? ORDER BY holds_key IS NULL, {NEWEST_FIRST}"
#: A run that came to nothing gives its key up, and so does the one of this id.
FREE_KEY = """UPDATE runs SET holds_key = NULL WHERE tenant = ? AND caller = ? AND idempotency_key = ? AND holds_key = 1
    AND (id = ? OR (effects = 0 AND (state = 'failed' OR state = 'interrupted' OR state = 'cancelled')))"""
HOLD_KEY = "UPDATE OR IGNORE runs SET holds_key = 1 WHERE tenant = ? AND id = ?"

#: A row whose run was pruned does no harm.
ADD_UNDELIVERED = """INSERT INTO undelivered VALUES (?, ?, ?, ?) ON CONFLICT (tenant, fingerprint) DO UPDATE
    SET run_id = excluded.run_id, created_s = excluded.created_s WHERE NOT EXISTS
    (SELECT 1 FROM runs WHERE runs.tenant = undelivered.tenant AND runs.id = undelivered.run_id)"""
UNDELIVERED = "SELECT run_id FROM undelivered WHERE tenant = ? AND fingerprint = ?"
UNDELIVERED_RUN = f"{RUNS} AND id = (SELECT run_id FROM undelivered u WHERE u.tenant = runs.tenant AND fingerprint = ?)"
DELIVERED = "DELETE FROM undelivered WHERE tenant = ? AND fingerprint = ? AND run_id = ?"
AWAITS = """INSERT INTO awaited VALUES (?, ?, ?, ?)
    ON CONFLICT (tenant, run_id, waiter) DO UPDATE SET until_s = excluded.until_s"""
IS_AWAITED = "SELECT 1 FROM awaited WHERE tenant = ? AND run_id = ? AND waiter <> ? AND until_s > ?"
AWAITS_NO_LONGER = "DELETE FROM awaited WHERE tenant = ? AND run_id = ? AND waiter = ?"

#: It waits for no person; in the words of the partial index.
_UNASKED = "(pending = 0 OR state <> 'awaiting_approval')"
_WANTED = "state IN (SELECT value FROM json_each(?1))"
#: The time of the lease is over, or so far ahead that the clock was set back since. At 0 none is over.
_OVER = f"(lease_s < ?2 OR (?2 > 0 AND lease_s > ?2 + {FAR_S}))"
#: Runs without an owner, longest untouched first, and runs whose owner did not renew the lease, some of each.
CLAIMABLE = f"""SELECT tenant, id FROM (
    SELECT * FROM (SELECT tenant, id, updated_s FROM runs INDEXED BY runs_free
        WHERE {_WANTED} AND owner IS NULL AND {ALIVE} AND {_UNASKED} ORDER BY updated_s LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT tenant, id, updated_s FROM runs INDEXED BY runs_by_owner
        WHERE owner > '' AND {ALIVE} AND {_OVER} AND {_WANTED} AND {_UNASKED} LIMIT ?3))
    ORDER BY updated_s LIMIT ?3"""
CLAIMABLE_RUN = f"""SELECT tenant, id FROM runs WHERE id = ?4 AND {ALIVE} AND {_WANTED}
    AND (owner IS NULL OR {_OVER}) AND {_UNASKED} ORDER BY updated_s, rowid LIMIT ?3"""
CLAIM = "UPDATE runs SET owner = ?, lease_s = ?, fence = fence + 1 WHERE tenant = ? AND id = ?"
#: Also shortens it: a clock that was set back must not leave a lease of hours behind.
RENEW = f"""UPDATE runs SET lease_s = ?
    WHERE owner = ? AND id IN (SELECT value FROM json_each(?)) AND {ALIVE} RETURNING id"""
#: As far as these runs have not ended, the next worker may claim them. Nothing drives the named ones.
RELEASE = f"""UPDATE runs SET owner = NULL, lease_s = 0, fence = fence + (?2 IS NULL)
    WHERE owner = ?1 AND (?2 IS NULL OR id IN (SELECT value FROM json_each(?2))) AND {ALIVE}"""
NEXT_FENCE = "UPDATE runs SET fence = fence + 1 WHERE tenant = ? AND id = ?"
CANCEL_RUN = f"""UPDATE runs SET state = 'cancelled', updated_s = ?, owner = NULL, lease_s = 0, fence = fence + 1
    WHERE tenant = ? AND id = ? AND {ALIVE}"""

# Steps.

STEP = _split_words("""run_id, tenant, number, round, call_id, tool, model_name, arguments, sha256, terminate, decision,
    basis, rule, reason, state, approval_id, result, shown, started_s, finished_s, risk_level, tainted, late,
    answer""")
#: What a worker saw of a step after it had lost the run stays, whatever the run's owner writes.
PUT_STEP = f"""{_build_insert("steps", STEP)} ON CONFLICT (tenant, run_id, number) DO UPDATE
    SET {", ".join(f"{column} = excluded.{column}" for column in STEP[3:] if column != "late")}"""
LATE_STEP = "UPDATE steps SET late = ? WHERE tenant = ? AND run_id = ? AND number = ?"
STEPS = f"SELECT {', '.join(STEP)} FROM steps WHERE tenant = ? AND run_id = ? ORDER BY number"

# Approvals.

APPROVAL = _split_words("""id, tenant, caller, conversation, run_id, step, tool, arguments, sha256, definition_sha256,
    policy_sha256, basis, rule, reason, state, created_s, expires_s, decided_s, decided_by, via, comment, edited,
    remember, secret, user, client, required, given, assigned, notes""")
ADD_APPROVAL = _build_insert("approvals", APPROVAL) + " ON CONFLICT (tenant, id) DO NOTHING"
APPROVALS = f"SELECT {', '.join(APPROVAL)} FROM approvals WHERE tenant = ?"
ONE_APPROVAL = APPROVALS + " AND id = ?"
_BEHIND = " AND ({key}) {than} (SELECT {key} FROM approvals WHERE tenant = ? AND id = ?)"
_URGENCY = "expires_s, created_s, id"
#: By order: the statement, the condition for the rows behind one, and the order in words of SQL.
APPROVALS_BY: Mapping[ApprovalOrder, tuple[str, str, str]] = {
    "oldest": (APPROVALS, _BEHIND.format(key="created_s, rowid", than=">"), OLDEST_FIRST),
    "newest": (APPROVALS, _BEHIND.format(key="created_s, rowid", than="<"), NEWEST_FIRST),
    # All pending approvals of a tenant are fewer than a conversation's approvals may be.
    "urgency": (
        f"""SELECT {", ".join(APPROVAL)} FROM approvals INDEXED BY approvals_by_urgency
            WHERE state = 'pending' AND tenant = ?""",
        _BEHIND.format(key=_URGENCY, than=">"),
        _URGENCY,
    ),
}
_WAITING = "coalesce(edited, arguments)"
#: What each entry of `NarrowedApprovals` compares; `text` is compared twice, the second time as it stands in JSON.
_NARROWED: Mapping[str, str] = {
    **{name: f"{name} = ?" for name in ("state", "conversation", "run_id", "sha256", "tool", "caller", "assigned")},
    # Not LIKE: a text of equal characters took it minutes, in which the thread reads nothing else.
    "text": f"""(instr(lower(id || ' ' || run_id || ' ' || tool || ' ' || caller || ' ' || coalesce(user, '') || ' '
        || coalesce(conversation, '')), ?) OR instr(lower({_WAITING}), ?))""",
    "equal_to": f"(tool, {_WAITING}) = (SELECT tool, {_WAITING} FROM approvals WHERE tenant = ? AND id = ?)",
    "since_s": "created_s >= ?",
    "until_s": "created_s < ?",
}
_GROUPED: Mapping[ApprovalGrouping, str] = {"tool": "tool", "caller": "caller", "call": f"tool, {_WAITING}"}
#: With one `min`, the other columns are from its row: `id` is the approval that expires first.
_GROUPS = f"""SELECT id, count(*), count(DISTINCT tool || char(10) || {_WAITING}), min(expires_s) FROM approvals
    INDEXED BY approvals_by_urgency WHERE state = 'pending' AND tenant = ?"""


def _build_conditions(tenant: str, narrowed: Mapping[str, object]) -> tuple[str, list[str | int | float]]:
    """Return the conditions of `NarrowedApprovals` and their values."""
    conditions, values = "", list[str | int | float]()
    for name, value in narrowed.items():
        if isinstance(value, str | float):
            conditions += f" AND {_NARROWED[name]}"
            values += (
                _list_needles(str(value)) if name == "text" else (tenant, value) if name == "equal_to" else (value,)
            )
    return conditions, values


def _list_needles(text: str) -> Sequence[str]:
    """Return a text as it is, and as it stands in canonical JSON, in small letters as `lower` of SQLite writes them."""
    return [
        one.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
        for one in (text, json.dumps(text, ensure_ascii=False)[1:-1])
    ]


def build_approvals_page(
    tenant: str, narrowed: Mapping[str, object], *, order: ApprovalOrder, after: str | None, limit: int
) -> tuple[str, Sequence[str | int | float]]:
    """Return the statement of a page of approvals, and its values."""
    select, behind, words = APPROVALS_BY[order]
    conditions, values = _build_conditions(tenant, narrowed)
    if after is not None:
        conditions, values = conditions + behind, [*values, tenant, after]
    return f"{select}{conditions} ORDER BY {words} LIMIT ?", (tenant, *values, limit)


def build_approval_groups(
    tenant: str, narrowed: Mapping[str, object], *, by: ApprovalGrouping, limit: int
) -> tuple[str, Sequence[str | int | float]]:
    """Return the statement of the groups of pending approvals, and its values."""
    conditions, values = _build_conditions(tenant, narrowed)
    order = "count(*) DESC, min(expires_s), id"
    return f"{_GROUPS}{conditions} GROUP BY {_GROUPED[by]} ORDER BY {order} LIMIT ?", (tenant, *values, limit)


#: What makes two calls the same question, and since when one that still waits is over.
ASKED = _split_words("tenant, sha256, caller, conversation, user, run_id, created_s")
ASKED_ALREADY = """SELECT 1 FROM approvals WHERE tenant = ? AND sha256 = ? AND state = 'pending' AND caller = ?
    AND conversation IS ? AND user IS ? AND run_id <> ? AND expires_s > ? LIMIT 1"""
MOVE = "UPDATE approvals SET state = ? WHERE tenant = ? AND id = ? AND state = ?"
#: The same where an earlier line may have moved it already, or its call may be on record as one that runs.
MOVE_AGAIN = "UPDATE approvals SET state = ?1 WHERE tenant = ?2 AND id = ?3 AND state IN (?4, ?1, 'executing')"
DECIDE = f"""UPDATE approvals
    SET state = ?, decided_s = ?, decided_by = ?, via = ?, comment = ?, edited = ?, remember = ?,
        given = coalesce(?, given)
    WHERE tenant = ? AND id = ? AND state = 'pending' RETURNING {", ".join(APPROVAL)}"""
#: One of several approvals, for the arguments that stand beside it.
ENDORSE = f"""UPDATE approvals SET given = ?, edited = ?
    WHERE tenant = ? AND id = ? AND state = 'pending' RETURNING {", ".join(APPROVAL)}"""
#: To whom one is assigned ('': to no one any more), or one note more.
NOTE = f"""UPDATE approvals SET assigned = CASE WHEN ?1 IS NULL THEN assigned ELSE nullif(?1, '') END,
        notes = CASE WHEN ?2 IS NULL THEN notes ELSE json_insert(notes, '$[#]', json(?2)) END
    WHERE tenant = ?3 AND id = ?4 AND state = 'pending' RETURNING {", ".join(APPROVAL)}"""
#: The ones whose calls will not run any more.
CANCEL_APPROVALS = f"""UPDATE approvals SET state = 'cancelled'
    WHERE tenant = ? AND run_id = ? AND (state = 'pending' OR state = 'approved') RETURNING {", ".join(APPROVAL)}"""
_RETURNING = f"RETURNING {', '.join(APPROVAL)}"
EXPIRE = f"""UPDATE approvals SET state = 'expired' WHERE rowid IN (SELECT rowid FROM approvals
    INDEXED BY approvals_pending WHERE state = 'pending' AND expires_s <= ? ORDER BY expires_s LIMIT ?) {_RETURNING}"""
EXPIRE_ONE = f"""UPDATE approvals SET state = 'expired' WHERE tenant = ? AND id = ? AND state = 'pending'
    AND expires_s <= ? {_RETURNING}"""
REPLACE_APPROVAL = "UPDATE steps SET approval_id = ? WHERE tenant = ? AND run_id = ? AND number = ? AND approval_id = ?"
#: All approvals expire after the same time: the one that expires first is the oldest.
STANDING = """SELECT (SELECT count(*) FROM approvals INDEXED BY approvals_pending WHERE state = 'pending'),
    (SELECT created_s FROM approvals INDEXED BY approvals_pending WHERE state = 'pending' ORDER BY expires_s LIMIT 1),
    (SELECT page_count FROM pragma_page_count()) * (SELECT page_size FROM pragma_page_size())"""
ALIVE_RUNS = f"""SELECT state, count(*), sum(state = 'running' AND lease_s < ?) FROM runs INDEXED BY runs_by_owner
    WHERE {ALIVE} GROUP BY state"""

TALLY = """SELECT count(*), min(expires_s) FROM approvals INDEXED BY approvals_by_urgency
    WHERE state = 'pending' AND tenant = ?"""
#: Of one tenant. A run that is under way and has pending approvals is shown as one that waits for them.
TALLY_RUNS = """SELECT CASE WHEN pending > 0 THEN 'awaiting_approval' ELSE 'running' END AS shown, count(*)
        FROM runs INDEXED BY runs_by_state WHERE tenant = ?1 AND state = 'running' GROUP BY shown
    UNION ALL SELECT state, count(*) FROM runs INDEXED BY runs_by_state
        WHERE tenant = ?1 AND state IN ('awaiting_approval', 'awaiting_client', 'unknown') GROUP BY state"""

# Grants, and conversations that ask before every call.

GRANT = _split_words("""id, tenant, caller, run_id, conversation, tool, sha256, definition_sha256, policy_sha256,
    created_s,
    granted_by, expires_s, approvals, user""")
ADD_GRANT = _build_insert("grants", GRANT)
_GRANTS = f"SELECT {', '.join(GRANT)} FROM grants WHERE tenant = ?"
GRANT_BY_ID = f"{_GRANTS} AND id = ?"
_VALID_GRANTS = f"{_GRANTS} AND coalesce(expires_s > ?, TRUE)"
GRANTS = f"{_VALID_GRANTS} ORDER BY {OLDEST_FIRST} LIMIT ?"
GRANTS_BEHIND = f"""{_VALID_GRANTS}
    AND (created_s, rowid) > (SELECT created_s, rowid FROM grants WHERE tenant = ? AND id = ?)
    ORDER BY {OLDEST_FIRST} LIMIT ?"""
#: A grant for a run is not one for its conversation. One for a conversation is its end user's.
ONE_GRANT = f"""{_VALID_GRANTS} AND caller = ? AND sha256 = ?
    AND (run_id = ? OR (run_id IS NULL AND conversation = ? AND user IS ?))
    ORDER BY {NEWEST_FIRST} LIMIT 1"""
DELETE_GRANT = "DELETE FROM grants WHERE tenant = ? AND id = ?"
ASK = _split_words("id, tenant, caller, conversation, created_s, expires_s, user")
ADD_ASK = f"""{_build_insert("asks", ASK)}
    ON CONFLICT (tenant, id) DO UPDATE SET expires_s = excluded.expires_s"""
_ASKS = f"SELECT {', '.join(ASK)} FROM asks WHERE tenant = ?"
ASK_BY_ID = f"{_ASKS} AND id = ?"
_VALID_ASKS = f"{_ASKS} AND expires_s > ?"
#: The table has no rowid: rows of the same moment are in the order of their conversations.
_ASKS_ORDER = "created_s, caller, conversation, id"
ASKS = f"{_VALID_ASKS} ORDER BY {_ASKS_ORDER} LIMIT ?"
ASKS_BEHIND = f"""{_VALID_ASKS} AND ({_ASKS_ORDER}) > (SELECT {_ASKS_ORDER} FROM asks WHERE tenant = ? AND id = ?)
    ORDER BY {_ASKS_ORDER} LIMIT ?"""
DELETE_ASK = "DELETE FROM asks WHERE tenant = ? AND id = ?"

# Events.

EVENT = _split_words("tenant, run_id, type, data, created_s, seq")
ADD_EVENT = _build_insert("events", EVENT[:-1])
EVENTS = f"SELECT {', '.join(EVENT)} FROM events WHERE seq > ?"
LAST_EVENT = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"

# The audit log.

AUDIT = _split_words(
    """tenant, caller, run_id, step, event, tool, sha256, decision, basis, rule, "by", via, created_s"""
)
ADD_AUDIT = _build_insert("audit", ("seq", *AUDIT, "hash"))
LAST_AUDIT = "SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1"
AUDIT_ROWS = f"SELECT seq, {', '.join(AUDIT)}, hash FROM audit WHERE seq > ? ORDER BY seq LIMIT ?"

# Pruning: what belongs to ended runs of that age, then the runs; some rows at a time.

OLD_RUNS = f"SELECT tenant, id FROM runs WHERE updated_s < ? AND {ENDED} ORDER BY updated_s LIMIT ?"
PRUNE_PARTS = tuple(
    f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE tenant = ? AND run_id = ? LIMIT ?)"
    for table in ("requests", "steps", "approvals", "grants", "events")
)
PRUNE_RUN = "DELETE FROM runs WHERE tenant = ? AND id = ?"
PRUNE_OLD = tuple(
    f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {time} < ? LIMIT ?)"
    for table, key, time in (
        ("hidden_keys", "tenant, key", "created_s"),
        ("hidden", "rowid", "created_s"),
        ("grants", "rowid", "expires_s"),
        ("asks", "tenant, id", "expires_s"),
        ("undelivered", "tenant, fingerprint", "created_s"),
        ("awaited", "tenant, run_id, waiter", "until_s"),
        # Reports on services from workers that are long gone.
        ("worker_services", "worker, name", "updated_s"),
    )
)
TAKE_DUTY = """INSERT INTO duties (name, owner, until_s) VALUES (?1, ?2, ?4) ON CONFLICT (name) DO UPDATE
    SET owner = ?2, until_s = ?4 WHERE owner = ?2 OR until_s < ?3 OR until_s > ?4"""


def prune_runs(connection: sqlite3.Connection, *, before_s: float, limit: int) -> int:
    """Delete old runs, up to `limit` rows. Return how many rows are gone."""
    left = limit
    for run in connection.execute(OLD_RUNS, (before_s, limit)).fetchall():
        for statement in PRUNE_PARTS:
            left -= connection.execute(statement, (*run, left)).rowcount
            if left <= 0:
                return limit
        left -= connection.execute(PRUNE_RUN, run).rowcount
        if left <= 0:
            return limit
    for statement in PRUNE_OLD:
        left -= connection.execute(statement, (before_s, left)).rowcount
        if left <= 0:
            return limit
    return limit - left
