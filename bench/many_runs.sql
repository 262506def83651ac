-- Runs of two years in a PostgreSQL store, for measuring lists, takeover and pruning:
--     psql -v runs=10000000 -f bench/many_runs.sql URL
-- Nearly all have ended; each has two steps and three events. The schema must be there, and the tables empty.

\set ON_ERROR_STOP on
SET session_replication_role = replica;
SET synchronous_commit = off;

INSERT INTO twolane.runs (id, tenant, caller, kind, chain, conversation, fingerprint, state, effects, created_s,
    updated_s, progress, owner, lease_s, fence, workflow, tool, client, idle_s)
SELECT 'run_' || to_char(n, 'FM0000000000'), 'tenant_' || n % 5, 'caller_' || n % 200,
    CASE n % 50 WHEN 0 THEN 'workflow' WHEN 1 THEN 'tool' ELSE 'chat' END, 'assistant',
    CASE WHEN n % 3 = 0 THEN 'talk_' || n % 100000 END, md5(n::text) || md5(n::text),
    CASE WHEN n % 20000 = 0 THEN 'unknown' WHEN n % 20000 = 1 THEN 'running' WHEN n % 40 = 0 THEN 'failed'
        ELSE 'completed' END, true, b.begin_s + n * 63072000.0 / :runs, b.begin_s + n * 63072000.0 / :runs + 30, '\x7b7d',
    CASE WHEN n % 20000 = 1 THEN 'worker_gone' END, b.begin_s, 1,
    CASE n % 50 WHEN 0 THEN 'flow_' || n % 7 END, CASE n % 50 WHEN 1 THEN 'look' END, NULL,
    CASE WHEN n % 20000 = 1 THEN NULL ELSE b.begin_s + n * 63072000.0 / :runs + 30 END
FROM generate_series(1, :runs) n, (SELECT extract(epoch FROM now())::float8 - 63072000 AS begin_s) b;
INSERT INTO twolane.requests SELECT tenant, id, '\x7b226d65737361676573223a5b5d7d' FROM twolane.runs;
INSERT INTO twolane.steps SELECT id, tenant, n, 1, 'call', 'look', 'look', '{}', fingerprint, false, 'run', 'default',
    'harmless', '', 'finished', NULL, 'done', NULL, created_s, updated_s, 'low', false, NULL, NULL
FROM twolane.runs, generate_series(1, 2) n;
INSERT INTO twolane.events SELECT row_number() OVER (ORDER BY created_s, n), tenant, id, 'step.finished', '\x7b7d', created_s
FROM twolane.runs, generate_series(1, 3) n;
UPDATE twolane.seals SET seq = (SELECT count(*) FROM twolane.events) WHERE name = 'events';
ANALYZE;
