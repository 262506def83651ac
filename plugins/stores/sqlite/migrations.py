"""The tables of the SQLite store, as the steps that create them.

`user_version` counts the steps that a file has seen. A released step is never changed. A new one is added behind it.
Every key begins with the tenant, so that a guessed or chosen id names nothing of another.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from gateway.plugin import ask_id

from .memory_statements import COUNTED_CHANGES, MEMORIES_OF_USERS

Migration: TypeAlias = Sequence[str]

#: "Twol": distinguishes a store from any other SQLite file (PRAGMA application_id).
APPLICATION_ID = 0x54776F6C

#: What lets the audit log only grow, by name.
AUDIT_TRIGGERS: Mapping[str, str] = {
    "audit_is_not_changed": """CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN
            SELECT raise(ABORT, 'a line of the audit log is never changed'); END""",
    "audit_is_not_deleted": """CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit BEGIN
            SELECT raise(ABORT, 'a line of the audit log is never deleted'); END""",
    # INSERT OR REPLACE deletes without a trigger.
    "audit_grows_at_its_end": """CREATE TRIGGER audit_grows_at_its_end BEFORE INSERT ON audit
            WHEN NEW.seq <> 1 + (SELECT coalesce(max(seq), 0) FROM audit) BEGIN
            SELECT raise(ABORT, 'a line of the audit log comes right behind the last one'); END""",
}

MIGRATIONS: Sequence[Migration] = (
    (
        "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
        "INSERT INTO counters VALUES ('generation', 0)",
        """CREATE TABLE prompts (
            id TEXT PRIMARY KEY, text TEXT NOT NULL, version INTEGER NOT NULL, updated_s REAL NOT NULL)""",
        """CREATE TABLE memories (
            tenant TEXT NOT NULL, caller TEXT NOT NULL, id TEXT NOT NULL, conversation TEXT, text TEXT NOT NULL,
            created_s REAL NOT NULL, PRIMARY KEY (tenant, caller, id))""",
        "CREATE INDEX memories_by_age ON memories (tenant, caller, created_s)",
        """CREATE TABLE hidden (
            tenant TEXT NOT NULL, prefix TEXT NOT NULL, messages TEXT NOT NULL, created_s REAL NOT NULL,
            PRIMARY KEY (tenant, prefix))""",
        "CREATE INDEX hidden_by_age ON hidden (created_s)",
        """CREATE TABLE runs (
            tenant TEXT NOT NULL, id TEXT NOT NULL, caller TEXT NOT NULL, chain TEXT NOT NULL,
            fingerprint TEXT NOT NULL, idempotency_key TEXT, state TEXT NOT NULL, effects INTEGER NOT NULL,
            created_s REAL NOT NULL, updated_s REAL NOT NULL, answer BLOB, error_code TEXT,
            PRIMARY KEY (tenant, id))""",
        "CREATE INDEX runs_by_fingerprint ON runs (tenant, fingerprint, updated_s)",
        "CREATE INDEX runs_by_key ON runs (tenant, caller, idempotency_key) WHERE idempotency_key IS NOT NULL",
        "CREATE INDEX runs_by_age ON runs (updated_s)",
    ),
    (
        "ALTER TABLE runs ADD COLUMN kind TEXT NOT NULL DEFAULT 'chat'",
        "ALTER TABLE runs ADD COLUMN conversation TEXT",
        "ALTER TABLE runs ADD COLUMN progress BLOB NOT NULL DEFAULT x''",
        "ALTER TABLE runs ADD COLUMN error TEXT",
        "ALTER TABLE runs ADD COLUMN owner TEXT",
        "ALTER TABLE runs ADD COLUMN lease_s REAL NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN fence INTEGER NOT NULL DEFAULT 0",
        # Nothing was kept that such a run could go on from.
        "UPDATE runs SET state = 'interrupted' WHERE state = 'running'",
        # A run is written twice a step: its time stands in no index until it has ended.
        "DROP INDEX runs_by_age",
        "DROP INDEX runs_by_fingerprint",
        "DROP INDEX runs_by_key",
        "CREATE INDEX runs_by_fingerprint ON runs (tenant, fingerprint, created_s)",
        """CREATE INDEX runs_by_key ON runs (tenant, caller, idempotency_key, created_s)
            WHERE idempotency_key IS NOT NULL""",
        # Each OR stands for an IN, which costs 50 us a write, because SQLite makes a table of its values each time.
        """CREATE INDEX runs_ended ON runs (updated_s) WHERE state = 'completed' OR state = 'rejected'
            OR state = 'expired' OR state = 'failed' OR state = 'interrupted' OR state = 'cancelled'""",
        """CREATE INDEX runs_alive ON runs (state) WHERE state = 'running' OR state = 'awaiting_approval'
            OR state = 'awaiting_client' OR state = 'unknown'""",
        """CREATE INDEX runs_by_owner ON runs (owner) WHERE state = 'running' OR state = 'awaiting_approval'
            OR state = 'awaiting_client' OR state = 'unknown'""",
        "CREATE INDEX runs_by_id ON runs (id)",
        "CREATE INDEX runs_by_begin ON runs (tenant, created_s)",
        "CREATE INDEX runs_by_state ON runs (tenant, state, created_s)",
        "CREATE INDEX runs_by_conversation ON runs (tenant, conversation, created_s) WHERE conversation IS NOT NULL",
        # The request of a run, which never changes and may be large, is not written again with every step.
        """CREATE TABLE requests (
            tenant TEXT NOT NULL, run_id TEXT NOT NULL, request BLOB NOT NULL, PRIMARY KEY (tenant, run_id))""",
        """CREATE TABLE steps (
            run_id TEXT NOT NULL, tenant TEXT NOT NULL, number INTEGER NOT NULL, round INTEGER NOT NULL,
            call_id TEXT NOT NULL, tool TEXT NOT NULL, model_name TEXT NOT NULL, arguments TEXT NOT NULL,
            sha256 TEXT NOT NULL, terminate INTEGER NOT NULL, decision TEXT NOT NULL, basis TEXT NOT NULL,
            rule TEXT NOT NULL, reason TEXT NOT NULL, state TEXT NOT NULL, approval_id TEXT, result TEXT, shown TEXT,
            started_s REAL, finished_s REAL, PRIMARY KEY (tenant, run_id, number))""",
        """CREATE TABLE approvals (
            id TEXT NOT NULL, tenant TEXT NOT NULL, caller TEXT NOT NULL, conversation TEXT, run_id TEXT NOT NULL,
            step INTEGER NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL, sha256 TEXT NOT NULL,
            definition_sha256 TEXT NOT NULL, policy_sha256 TEXT NOT NULL, basis TEXT NOT NULL, rule TEXT NOT NULL,
            reason TEXT NOT NULL, state TEXT NOT NULL, created_s REAL NOT NULL, expires_s REAL NOT NULL,
            decided_s REAL, decided_by TEXT, via TEXT, comment TEXT, edited TEXT, remember TEXT NOT NULL,
            PRIMARY KEY (tenant, id))""",
        "CREATE INDEX approvals_by_begin ON approvals (tenant, created_s)",
        "CREATE INDEX approvals_by_state ON approvals (tenant, state, created_s)",
        "CREATE INDEX approvals_by_run ON approvals (tenant, run_id, created_s)",
        """CREATE INDEX approvals_by_conversation ON approvals (tenant, conversation, created_s)
            WHERE conversation IS NOT NULL""",
        "CREATE INDEX approvals_pending ON approvals (expires_s) WHERE state = 'pending'",
        """CREATE TABLE grants (
            id TEXT NOT NULL, tenant TEXT NOT NULL, caller TEXT NOT NULL, run_id TEXT, conversation TEXT,
            tool TEXT NOT NULL, sha256 TEXT NOT NULL, definition_sha256 TEXT NOT NULL, policy_sha256 TEXT NOT NULL,
            created_s REAL NOT NULL, granted_by TEXT NOT NULL, PRIMARY KEY (tenant, id))""",
        "CREATE INDEX grants_by_call ON grants (tenant, caller, sha256, created_s)",
        "CREATE INDEX grants_by_run ON grants (tenant, run_id)",
        """CREATE TABLE asks (
            tenant TEXT NOT NULL, caller TEXT NOT NULL, conversation TEXT NOT NULL, created_s REAL NOT NULL,
            PRIMARY KEY (tenant, caller, conversation)) WITHOUT ROWID""",
        # AUTOINCREMENT: a number is not given again after its event was pruned, so no reader waits behind it for ever.
        """CREATE TABLE events (
            tenant TEXT NOT NULL, run_id TEXT NOT NULL, type TEXT NOT NULL, data BLOB NOT NULL,
            created_s REAL NOT NULL, seq INTEGER PRIMARY KEY AUTOINCREMENT)""",
        "CREATE INDEX events_by_tenant ON events (tenant)",
        "CREATE INDEX events_by_run ON events (tenant, run_id)",
        """CREATE TABLE audit (
            seq INTEGER PRIMARY KEY, tenant TEXT NOT NULL, caller TEXT NOT NULL, run_id TEXT NOT NULL,
            step INTEGER NOT NULL, event TEXT NOT NULL, tool TEXT NOT NULL, sha256 TEXT NOT NULL,
            decision TEXT NOT NULL, basis TEXT NOT NULL, rule TEXT NOT NULL, "by" TEXT NOT NULL, via TEXT NOT NULL,
            created_s REAL NOT NULL, hash TEXT NOT NULL)""",
        *AUDIT_TRIGGERS.values(),
    ),
    (
        # `config` is the JSON object of a service that was registered, as it was sent: with its secrets.
        """CREATE TABLE services (
            name TEXT PRIMARY KEY, config BLOB, stopped INTEGER NOT NULL, restarts INTEGER NOT NULL,
            pins TEXT NOT NULL, version INTEGER NOT NULL, updated_s REAL NOT NULL)""",
        """CREATE TABLE worker_services (
            worker TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL, error TEXT, updated_s REAL NOT NULL,
            PRIMARY KEY (worker, name)) WITHOUT ROWID""",
        "CREATE INDEX worker_services_by_age ON worker_services (updated_s)",
    ),
    (
        # A prompt was common to all tenants: each tenant that the store has seen gets it as its own.
        "ALTER TABLE prompts RENAME TO prompts_of_all",
        """CREATE TABLE prompts (
            tenant TEXT NOT NULL, id TEXT NOT NULL, text TEXT NOT NULL, version INTEGER NOT NULL,
            updated_s REAL NOT NULL, PRIMARY KEY (tenant, id))""",
        """INSERT INTO prompts SELECT tenants.tenant, id, text, version, updated_s FROM prompts_of_all,
            (SELECT 'local' AS tenant UNION SELECT tenant FROM runs UNION SELECT tenant FROM memories
            UNION SELECT tenant FROM hidden UNION SELECT tenant FROM audit) AS tenants""",
        "DROP TABLE prompts_of_all",
    ),
    (
        # The model's risk level, whether the result is untrusted, what came after the run was lost.
        "ALTER TABLE steps ADD COLUMN risk_level TEXT",
        "ALTER TABLE steps ADD COLUMN tainted INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE steps ADD COLUMN late TEXT",
        # An older kept turn does not record who wrote its results: it counts as untrusted.
        "ALTER TABLE hidden ADD COLUMN tainted INTEGER NOT NULL DEFAULT 1",
        # What is remembered for a conversation ends; what was remembered before, thirty days after it began.
        "ALTER TABLE grants ADD COLUMN expires_s REAL",
        "UPDATE grants SET expires_s = created_s + 2592000 WHERE run_id IS NULL",
        "ALTER TABLE asks ADD COLUMN expires_s REAL NOT NULL DEFAULT 0",
        "UPDATE asks SET expires_s = created_s + 2592000",
        "CREATE INDEX grants_by_end ON grants (expires_s)",
        "CREATE INDEX asks_by_end ON asks (expires_s)",
    ),
    (
        # Hidden turns were found by how a client wrote its messages: no client's next request would match them.
        "DROP TABLE hidden",
        """CREATE TABLE hidden (
            tenant TEXT NOT NULL, id TEXT NOT NULL, run_id TEXT NOT NULL, "start" INTEGER NOT NULL,
            "end" INTEGER NOT NULL, "before" TEXT NOT NULL, behind TEXT NOT NULL, tainted INTEGER NOT NULL,
            created_s REAL NOT NULL, PRIMARY KEY (tenant, id))""",
        "CREATE INDEX hidden_by_age ON hidden (created_s)",
        # `turn` is NULL where the key came to mean two of them.
        """CREATE TABLE hidden_keys (
            tenant TEXT NOT NULL, key TEXT NOT NULL, turn TEXT, created_s REAL NOT NULL,
            PRIMARY KEY (tenant, key)) WITHOUT ROWID""",
        "CREATE INDEX hidden_keys_by_age ON hidden_keys (created_s)",
    ),
    (
        # What the check words of chat decisions are derived from.
        "ALTER TABLE approvals ADD COLUMN secret TEXT NOT NULL DEFAULT ''",
        "UPDATE approvals SET secret = lower(hex(randomblob(16)))",
    ),
    (
        # Whether the same call already waits for approval.
        "CREATE INDEX approvals_by_call ON approvals (tenant, sha256, state, created_s)",
    ),
    (
        # How many of its approvals are pending: a run that waits for a person is not looked at until it is none.
        "ALTER TABLE runs ADD COLUMN pending INTEGER NOT NULL DEFAULT 0",
        """UPDATE runs SET pending = (SELECT count(*) FROM approvals a
            WHERE a.tenant = runs.tenant AND a.run_id = runs.id AND a.state = 'pending')
            WHERE state = 'running' OR state = 'awaiting_approval' OR state = 'awaiting_client' OR state = 'unknown'""",
        """CREATE TRIGGER approvals_are_asked AFTER INSERT ON approvals WHEN NEW.state = 'pending' BEGIN
            UPDATE runs SET pending = pending + 1 WHERE tenant = NEW.tenant AND id = NEW.run_id; END""",
        """CREATE TRIGGER approvals_are_resolved AFTER UPDATE OF state ON approvals
            WHEN OLD.state = 'pending' AND NEW.state <> 'pending' BEGIN
            UPDATE runs SET pending = pending - 1 WHERE tenant = NEW.tenant AND id = NEW.run_id; END""",
        "DROP INDEX runs_alive",
        """CREATE INDEX runs_free ON runs (state, updated_s) WHERE owner IS NULL
            AND (state = 'running' OR state = 'awaiting_approval' OR state = 'awaiting_client' OR state = 'unknown')
            AND (pending = 0 OR state <> 'awaiting_approval')""",
    ),
    (
        # What one process does for all of them, and which one.
        "CREATE TABLE duties (name TEXT PRIMARY KEY, owner TEXT NOT NULL, until_s REAL NOT NULL) WITHOUT ROWID",
    ),
    MEMORIES_OF_USERS,
    (
        # The end user of the request; for a waiting run it stands in the request of the run.
        "ALTER TABLE approvals ADD COLUMN user TEXT",
        """UPDATE approvals SET user = (SELECT json_extract(CAST(request AS TEXT), '$.user') FROM requests
            WHERE requests.tenant = approvals.tenant AND requests.run_id = approvals.run_id
            AND json_valid(CAST(request AS TEXT))) WHERE state = 'pending'""",
    ),
    (
        # An ask is found by its id. A gateway of an older version that still writes the store names none: SQLite does.
        "ALTER TABLE asks RENAME TO asks_without_ids",
        """CREATE TABLE asks (
            id TEXT NOT NULL DEFAULT ('ask_' || lower(hex(randomblob(12)))), tenant TEXT NOT NULL,
            caller TEXT NOT NULL, conversation TEXT NOT NULL, created_s REAL NOT NULL, expires_s REAL NOT NULL,
            PRIMARY KEY (tenant, caller, conversation)) WITHOUT ROWID""",
        """INSERT INTO asks SELECT ask_id(tenant, caller, conversation), tenant, caller, conversation, created_s,
            expires_s FROM asks_without_ids""",
        "DROP TABLE asks_without_ids",
        "CREATE INDEX asks_by_end ON asks (expires_s)",
        # UNIQUE: otherwise SQLite looks for an id in the next index, through all rows of the tenant.
        "CREATE UNIQUE INDEX asks_by_id ON asks (tenant, id)",
        # With all columns: a list passes over expired ones without a look at the table.
        "CREATE INDEX asks_by_begin ON asks (tenant, created_s, caller, conversation, expires_s, id)",
        "CREATE INDEX grants_by_begin ON grants (tenant, created_s)",
    ),
    (
        # Of the console: what signs its sessions, and the sessions that people have ended.
        "CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE ended_sessions (digest TEXT PRIMARY KEY, until_s REAL NOT NULL) WITHOUT ROWID",
        "CREATE INDEX ended_sessions_by_end ON ended_sessions (until_s)",
    ),
    (
        # Lists of runs by what a person looks for. Each index has what a list may be narrowed by besides, so that what
        # it passes over costs no look at the table, whose rows are large. Only the state changes: see `run_lists`.
        "ALTER TABLE runs ADD COLUMN workflow TEXT",
        """UPDATE runs SET workflow = (SELECT json_extract(CAST(request AS TEXT), '$.workflow.definition.name')
            FROM requests WHERE requests.tenant = runs.tenant AND requests.run_id = runs.id
            AND json_valid(CAST(request AS TEXT))) WHERE kind = 'workflow'""",
        "DROP INDEX runs_by_begin",
        "DROP INDEX runs_by_state",
        "CREATE INDEX runs_by_begin ON runs (tenant, created_s, id, kind)",
        "CREATE INDEX runs_by_state ON runs (tenant, state, created_s, id, caller, kind)",
        "CREATE INDEX runs_by_caller ON runs (tenant, caller, created_s, id, kind)",
        # Of the few runs of workflows.
        "CREATE INDEX runs_of_workflows ON runs (tenant, created_s, id, caller, state, kind) WHERE kind = 'workflow'",
        """CREATE INDEX runs_by_workflow ON runs (tenant, workflow, created_s, id, caller, state, kind)
            WHERE workflow IS NOT NULL""",
        # With the state, or SQLite reads it from the table though all of them have the same.
        """CREATE INDEX approvals_by_urgency ON approvals (tenant, expires_s, created_s, id, state)
            WHERE state = 'pending'""",
    ),
    (
        # The definitions of MCP tools that were accepted, as JSON: a pin is only the hash of one.
        """CREATE TABLE definitions (
            seq INTEGER PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, content TEXT NOT NULL)""",
    ),
    (
        # A response is usually written once, when it has ended: it stands in one index only, and `number`, the order in
        # which they were stored, is also their order of age. Small columns come before ones that may be large.
        """CREATE TABLE responses (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL, tenant TEXT NOT NULL, caller TEXT NOT NULL,
            state TEXT NOT NULL, created_s REAL NOT NULL, run_id TEXT NOT NULL, previous_id TEXT, conversation TEXT,
            background INTEGER NOT NULL, request BLOB NOT NULL, input BLOB NOT NULL, output BLOB,
            UNIQUE (tenant, id))""",
        """CREATE INDEX responses_open ON responses (tenant, run_id, created_s)
            WHERE state = 'queued' OR state = 'in_progress'""",
        # The logs of background answers, and the items of conversations, each beside the others of the same one.
        """CREATE TABLE answer_chunks (
            response INTEGER NOT NULL, number INTEGER NOT NULL, chunk BLOB NOT NULL,
            PRIMARY KEY (response, number)) WITHOUT ROWID""",
        """CREATE TABLE conversations (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL, tenant TEXT NOT NULL, created_s REAL NOT NULL,
            metadata BLOB NOT NULL, updated_s REAL NOT NULL, UNIQUE (tenant, id))""",
        "CREATE INDEX conversations_by_age ON conversations (updated_s)",
        """CREATE TABLE conversation_items (
            conversation INTEGER NOT NULL, number INTEGER NOT NULL, id TEXT NOT NULL, item BLOB NOT NULL,
            PRIMARY KEY (conversation, number), UNIQUE (conversation, id)) WITHOUT ROWID""",
    ),
    COUNTED_CHANGES,
    (
        # Calls of MCP clients: their tool, the client, and the parts of a result other than text.
        "ALTER TABLE runs ADD COLUMN tool TEXT",
        "ALTER TABLE runs ADD COLUMN client TEXT",
        "ALTER TABLE approvals ADD COLUMN client TEXT",
        "ALTER TABLE steps ADD COLUMN answer BLOB",
        "CREATE INDEX runs_of_tools ON runs (tenant, created_s, id, caller, state, kind) WHERE kind = 'tool'",
        # Runs whose approval a person saw, until their client has the result: the same call joins such a run.
        """CREATE TABLE undelivered (
            tenant TEXT NOT NULL, fingerprint TEXT NOT NULL, run_id TEXT NOT NULL, created_s REAL NOT NULL,
            PRIMARY KEY (tenant, fingerprint)) WITHOUT ROWID""",
        "CREATE INDEX undelivered_by_age ON undelivered (created_s)",
    ),
    (
        # One run has an Idempotency-Key: of runs that had the same one before, the newest.
        "ALTER TABLE runs ADD COLUMN holds_key INTEGER",
        """UPDATE runs SET holds_key = 1 WHERE idempotency_key IS NOT NULL AND rowid = (SELECT r.rowid FROM runs r
            WHERE r.tenant = runs.tenant AND r.caller = runs.caller AND r.idempotency_key = runs.idempotency_key
            ORDER BY r.created_s DESC, r.rowid DESC LIMIT 1)""",
        "CREATE UNIQUE INDEX runs_holding_keys ON runs (tenant, caller, idempotency_key) WHERE holds_key = 1",
    ),
    (
        # Requests that decide begin no run: their Idempotency-Key is that of their response.
        "ALTER TABLE responses ADD COLUMN idempotency_key TEXT",
        "ALTER TABLE responses ADD COLUMN fingerprint TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE responses ADD COLUMN decides TEXT NOT NULL DEFAULT ''",
        """CREATE INDEX responses_by_key ON responses (tenant, caller, idempotency_key)
            WHERE idempotency_key IS NOT NULL""",
        # The decisions whose answer a conversation has. A person made each of them, so they are few.
        """CREATE TABLE conversation_decisions (
            conversation INTEGER NOT NULL, approval_id TEXT NOT NULL, PRIMARY KEY (conversation, approval_id))
            WITHOUT ROWID""",
        """CREATE TRIGGER decisions_go_with_their_conversation AFTER DELETE ON conversations BEGIN
            DELETE FROM conversation_decisions WHERE conversation = OLD.number; END""",
    ),
    (
        # The requests of MCP clients that wait for the run of a call, each until then unless it is renewed.
        """CREATE TABLE awaited (
            tenant TEXT NOT NULL, run_id TEXT NOT NULL, waiter TEXT NOT NULL, until_s REAL NOT NULL,
            PRIMARY KEY (tenant, run_id, waiter)) WITHOUT ROWID""",
        "CREATE INDEX awaited_by_age ON awaited (until_s)",
    ),
    (
        """CREATE TABLE usage (
            tenant TEXT NOT NULL, day TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, upstream TEXT NOT NULL,
            lane TEXT NOT NULL, currency TEXT NOT NULL, requests INTEGER NOT NULL, rejected INTEGER NOT NULL,
            cut INTEGER NOT NULL, estimated INTEGER NOT NULL, input INTEGER NOT NULL, cached INTEGER NOT NULL,
            output INTEGER NOT NULL, reasoning INTEGER NOT NULL, cost INTEGER NOT NULL,
            PRIMARY KEY (tenant, day, key, model, upstream, lane, currency)) WITHOUT ROWID""",
        "CREATE INDEX usage_by_day ON usage (day)",
        # The processes that may have usage which is not stored yet.
        "CREATE TABLE usage_writers (writer TEXT PRIMARY KEY, added_s REAL NOT NULL) WITHOUT ROWID",
    ),
    (
        # Keys that were made at run time. `number` is the order in which they were.
        """CREATE TABLE keys (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, name TEXT NOT NULL,
            sha256 TEXT NOT NULL UNIQUE, hint TEXT NOT NULL, terms TEXT NOT NULL, created_s REAL NOT NULL,
            created_by TEXT NOT NULL, expires_s REAL, revoked_s REAL, revoked_by TEXT, rotated_from TEXT UNIQUE,
            used_s REAL)""",
        "CREATE INDEX keys_of_tenants ON keys (tenant, number)",
        "CREATE INDEX keys_by_end ON keys (coalesce(revoked_s, expires_s))",
    ),
    (
        # How often the usage of a day has changed, whoever changed it. The triggers are per row: SQLite has no other
        # kind.
        "CREATE TABLE usage_days (day TEXT PRIMARY KEY, changes INTEGER NOT NULL) WITHOUT ROWID",
        """CREATE TRIGGER usage_additions_are_counted AFTER INSERT ON usage BEGIN
            INSERT INTO usage_days VALUES (NEW.day, 1) ON CONFLICT (day) DO UPDATE SET changes = changes + 1; END""",
        """CREATE TRIGGER usage_updates_are_counted AFTER UPDATE ON usage BEGIN
            INSERT INTO usage_days VALUES (NEW.day, 1) ON CONFLICT (day) DO UPDATE SET changes = changes + 1; END""",
    ),
    (
        # Hidden turns were found by keys without the end user. The marks of taint stay: they have no messages.
        "ALTER TABLE hidden ADD COLUMN conversation TEXT",
        """DELETE FROM hidden_keys WHERE turn IS NULL OR EXISTS (
            SELECT 1 FROM hidden WHERE hidden.tenant = hidden_keys.tenant AND hidden.id = hidden_keys.turn
            AND (hidden."before" <> '[]' OR hidden.behind <> '[]'))""",
        """DELETE FROM hidden WHERE "before" <> '[]' OR behind <> '[]'""",
    ),
    (
        # Calls that several keys must approve: how many, and the approvals so far.
        "ALTER TABLE approvals ADD COLUMN required INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE approvals ADD COLUMN given TEXT NOT NULL DEFAULT '[]'",
        "ALTER TABLE grants ADD COLUMN approvals INTEGER NOT NULL DEFAULT 1",
    ),
    (
        # Grants and asks of a conversation belong to an end user. Grants of before, which name none, are deleted.
        "ALTER TABLE grants ADD COLUMN user TEXT",
        "DELETE FROM grants WHERE run_id IS NULL",
        "ALTER TABLE asks RENAME TO asks_without_users",
        """CREATE TABLE asks (
            id TEXT NOT NULL, tenant TEXT NOT NULL, caller TEXT NOT NULL, conversation TEXT NOT NULL,
            created_s REAL NOT NULL, expires_s REAL NOT NULL, user TEXT, PRIMARY KEY (tenant, id)) WITHOUT ROWID""",
        """INSERT INTO asks SELECT id, tenant, caller, conversation, created_s, expires_s, NULL
            FROM asks_without_users""",
        "DROP TABLE asks_without_users",
        "CREATE INDEX asks_by_end ON asks (expires_s)",
        # With all columns: a list passes over expired ones without a look at the table.
        "CREATE INDEX asks_by_begin ON asks (tenant, created_s, caller, conversation, id, expires_s, user)",
    ),
    (
        # Whom a call is assigned to, and what people noted on it.
        "ALTER TABLE approvals ADD COLUMN assigned TEXT",
        "ALTER TABLE approvals ADD COLUMN notes TEXT NOT NULL DEFAULT '[]'",
    ),
    (
        # The shares that gateways have of their limits. What a gateway lacks is rare, so it has an index of its own.
        """CREATE TABLE quota_gateways (
            gateway TEXT PRIMARY KEY, turn INTEGER NOT NULL, seen_s REAL NOT NULL, alive_s REAL NOT NULL
            ) WITHOUT ROWID""",
        """CREATE TABLE quota_shares (
            name TEXT NOT NULL, gateway TEXT NOT NULL, share INTEGER NOT NULL, used INTEGER NOT NULL,
            needed INTEGER NOT NULL, base INTEGER NOT NULL, lapse_s REAL NOT NULL,
            PRIMARY KEY (name, gateway)) WITHOUT ROWID""",
        "CREATE INDEX quota_lacking ON quota_shares (name) WHERE needed > share",
        "CREATE INDEX quota_of_gateways ON quota_shares (gateway)",
    ),
    (
        # Who is there, at which address, and what runs there once for all.
        """CREATE TABLE replica_leases (
            name TEXT PRIMARY KEY, owner TEXT NOT NULL, address TEXT NOT NULL, until_s REAL NOT NULL) WITHOUT ROWID""",
    ),
    (
        # The last addition of usage by each process: one that is repeated is found done.
        "ALTER TABLE usage_writers ADD COLUMN number INTEGER NOT NULL DEFAULT 0",
    ),
)


def execute_statements(migrations: Iterable[Migration], connection: sqlite3.Connection) -> None:
    """Execute the statements one by one. They may call `ask_id`, which SQLite does not have."""
    connection.create_function("ask_id", 3, ask_id, deterministic=True)
    for migration in migrations:
        for statement in migration:
            connection.execute(statement)
