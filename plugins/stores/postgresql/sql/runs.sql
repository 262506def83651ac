-- Runs, their requests and steps, and the functions that change them.
--
-- 1. Whatever changes a run, its steps or its approvals locks the row of the run first; rows of several runs are locked
--    in the order of their keys.
-- 2. A run under way is written twice a step. No index has a column that such a write changes: PostgreSQL then writes
--    no index at all. `idle_s` stands for `updated_s` in them, once nothing drives the run.
-- 3. Lists are read in the order of their indexes, which have what a list may be narrowed by besides.

CREATE TABLE twolane.runs (
    id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    caller text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    chain text COLLATE "C" NOT NULL,
    conversation text COLLATE "C",
    fingerprint text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C",
    state text COLLATE "C" NOT NULL,
    effects boolean NOT NULL,
    created_s double precision NOT NULL,
    updated_s double precision NOT NULL,
    progress bytea NOT NULL,
    answer bytea,
    error_code text COLLATE "C",
    error text COLLATE "C",
    owner text COLLATE "C",
    lease_s double precision NOT NULL, -- by the database's clock
    fence integer NOT NULL,
    workflow text COLLATE "C",
    tool text COLLATE "C",
    client text COLLATE "C",
    pending integer NOT NULL DEFAULT 0, -- its approvals that wait
    holds_key boolean, -- whether the run has its Idempotency-Key, which several may have had
    idle_s double precision, -- when it was changed last, where nothing drives it
    PRIMARY KEY (id, tenant)) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX runs_by_fingerprint ON twolane.runs (tenant, fingerprint, created_s);
CREATE INDEX runs_by_key ON twolane.runs (tenant, caller, twolane.digest(idempotency_key), created_s)
    WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX runs_holding_keys ON twolane.runs (tenant, caller, twolane.digest(idempotency_key))
    WHERE holds_key;
CREATE INDEX runs_free ON twolane.runs (state, idle_s) WHERE owner IS NULL
    AND state IN ('running', 'awaiting_approval', 'awaiting_client', 'unknown')
    AND (pending = 0 OR state <> 'awaiting_approval');
CREATE INDEX runs_by_owner ON twolane.runs (owner) WHERE owner IS NOT NULL
    AND state IN ('running', 'awaiting_approval', 'awaiting_client', 'unknown');
CREATE INDEX runs_alive ON twolane.runs (tenant, state) INCLUDE (pending)
    WHERE state IN ('running', 'awaiting_approval', 'awaiting_client', 'unknown');
CREATE INDEX runs_ended ON twolane.runs (idle_s)
    WHERE state IN ('completed', 'rejected', 'expired', 'failed', 'interrupted', 'cancelled');
CREATE INDEX runs_by_begin ON twolane.runs (tenant, created_s, id) INCLUDE (kind);
CREATE INDEX runs_by_state ON twolane.runs (tenant, state, created_s, id) INCLUDE (caller, kind);
CREATE INDEX runs_by_caller ON twolane.runs (tenant, caller, created_s, id) INCLUDE (kind);
CREATE INDEX runs_by_conversation ON twolane.runs (tenant, conversation, created_s, id)
    WHERE conversation IS NOT NULL;
CREATE INDEX runs_of_workflows ON twolane.runs (tenant, created_s, id) INCLUDE (caller, state)
    WHERE kind = 'workflow';
CREATE INDEX runs_of_tools ON twolane.runs (tenant, created_s, id) INCLUDE (caller, state) WHERE kind = 'tool';
CREATE INDEX runs_by_workflow ON twolane.runs (tenant, workflow, created_s, id) INCLUDE (caller, state, kind)
    WHERE workflow IS NOT NULL;

-- The request of a run, which may be large, is not written again with every step.
CREATE TABLE twolane.requests (
    tenant text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    request bytea NOT NULL,
    PRIMARY KEY (tenant, run_id));

CREATE TABLE twolane.steps (
    run_id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    number integer NOT NULL,
    round integer NOT NULL,
    call_id text COLLATE "C" NOT NULL,
    tool text COLLATE "C" NOT NULL,
    model_name text COLLATE "C" NOT NULL,
    arguments text COLLATE "C" NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    terminate boolean NOT NULL,
    decision text COLLATE "C" NOT NULL,
    basis text COLLATE "C" NOT NULL,
    rule text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    approval_id text COLLATE "C",
    result text COLLATE "C",
    shown text COLLATE "C",
    started_s double precision,
    finished_s double precision,
    risk_level text COLLATE "C",
    tainted boolean NOT NULL,
    late text COLLATE "C",
    answer bytea,
    PRIMARY KEY (tenant, run_id, number)) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);

-- The runs whose result their MCP client still wants; a row whose run was pruned does no harm.
CREATE TABLE twolane.undelivered (
    tenant text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    created_s double precision NOT NULL,
    PRIMARY KEY (tenant, fingerprint));
CREATE INDEX undelivered_by_age ON twolane.undelivered (created_s);

-- The requests of MCP clients that wait for the run of a call, each until then unless it is renewed.
CREATE TABLE twolane.awaited (
    tenant text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    waiter text COLLATE "C" NOT NULL,
    until_s double precision NOT NULL,
    PRIMARY KEY (tenant, run_id, waiter));
CREATE INDEX awaited_by_age ON twolane.awaited (until_s);

-- Insert a new run with its request. False: one of this id is there.
CREATE FUNCTION twolane.insert_run(r twolane.runs, p_request bytea, p_takes_key_of text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF r.idempotency_key IS NOT NULL THEN
        -- A run that came to nothing gives its key up, and so does the named one.
        UPDATE twolane.runs SET holds_key = NULL
        WHERE tenant = r.tenant AND caller = r.caller
            AND twolane.digest(idempotency_key) = twolane.digest(r.idempotency_key) AND holds_key AND id <> r.id
            AND (id = p_takes_key_of OR (NOT effects AND state IN ('failed', 'interrupted', 'cancelled')));
    END IF;
    INSERT INTO twolane.runs (id, tenant, caller, kind, chain, conversation, fingerprint, idempotency_key, state,
        effects, created_s, updated_s, progress, answer, error_code, error, owner, lease_s, fence, workflow, tool,
        client, holds_key, idle_s)
    VALUES (r.id, r.tenant, r.caller, r.kind, r.chain, r.conversation, r.fingerprint, r.idempotency_key, r.state,
        r.effects, r.created_s, r.updated_s, r.progress, r.answer, r.error_code, r.error, r.owner,
        CASE WHEN r.owner IS NULL THEN r.lease_s ELSE twolane.now_s() + (r.lease_s - r.updated_s) END, r.fence,
        r.workflow, r.tool, r.client, CASE WHEN r.idempotency_key IS NOT NULL THEN true END,
        CASE WHEN r.owner IS NULL OR NOT twolane.is_alive(r.state) THEN r.updated_s END)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        INSERT INTO twolane.requests VALUES (r.tenant, r.id, p_request);
        RETURN true;
    END IF;
    IF NOT EXISTS (SELECT FROM twolane.runs WHERE tenant = r.tenant AND id = r.id) THEN
        RAISE EXCEPTION 'another run has the Idempotency-Key of the run ''%''', r.id USING ERRCODE = 'TW003';
    END IF;
    RETURN false;
END $$;

CREATE FUNCTION twolane.is_alive(p_state text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_state IN ('running', 'awaiting_approval', 'awaiting_client', 'unknown')
$$;

-- A change never shortens the lease of the run, but may give it up.
CREATE FUNCTION twolane.update_run(r twolane.runs, p_passes_on boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE twolane.runs SET state = r.state, effects = r.effects, updated_s = r.updated_s, progress = r.progress,
        answer = r.answer, error_code = r.error_code, error = r.error, owner = r.owner,
        lease_s = CASE WHEN r.owner IS NULL THEN r.lease_s
            ELSE greatest(lease_s, twolane.now_s() + (r.lease_s - r.updated_s)) END,
        fence = fence + p_passes_on::integer,
        idle_s = CASE WHEN r.owner IS NULL OR NOT twolane.is_alive(r.state) THEN r.updated_s END
    WHERE tenant = r.tenant AND id = r.id AND fence = r.fence
        AND state IN ('running', 'awaiting_approval', 'awaiting_client', 'unknown');
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the run ''%'' has ended, or another worker has it: its fence is not %', r.id, r.fence
            USING ERRCODE = 'TW001';
    END IF;
END $$;

CREATE FUNCTION twolane.put_steps(p_steps json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO twolane.steps (run_id, tenant, number, round, call_id, tool, model_name, arguments, sha256, terminate,
        decision, basis, rule, reason, state, approval_id, result, shown, started_s, finished_s, risk_level, tainted,
        late, answer)
    SELECT s.run_id, s.tenant, s.number, s.round, s.call_id, s.tool, s.model_name, s.arguments, s.sha256, s.terminate,
        s.decision, s.basis, s.rule, s.reason, s.state, s.approval_id, s.result, s.shown, s.started_s, s.finished_s,
        s.risk_level, s.tainted, s.late, s.answer
    FROM json_populate_recordset(NULL::twolane.steps, p_steps) s
    ON CONFLICT (tenant, run_id, number) DO UPDATE SET
        round = excluded.round, call_id = excluded.call_id, tool = excluded.tool, model_name = excluded.model_name,
        arguments = excluded.arguments, sha256 = excluded.sha256, terminate = excluded.terminate,
        decision = excluded.decision, basis = excluded.basis, rule = excluded.rule, reason = excluded.reason,
        state = excluded.state, approval_id = excluded.approval_id, result = excluded.result, shown = excluded.shown,
        started_s = excluded.started_s, finished_s = excluded.finished_s, risk_level = excluded.risk_level,
        tainted = excluded.tainted, answer = excluded.answer;
END $$;

-- Record that the client of a run still wants its result. Only one run of a fingerprint may ask a person.
CREATE FUNCTION twolane.record_undelivered(r twolane.runs, p_is_asked boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_run_id text;
BEGIN
    INSERT INTO twolane.undelivered AS u VALUES (r.tenant, r.fingerprint, r.id, r.created_s)
    ON CONFLICT (tenant, fingerprint) DO UPDATE SET run_id = excluded.run_id, created_s = excluded.created_s
    WHERE NOT EXISTS (SELECT FROM twolane.runs WHERE tenant = u.tenant AND id = u.run_id);
    SELECT run_id INTO v_run_id FROM twolane.undelivered WHERE tenant = r.tenant AND fingerprint = r.fingerprint;
    IF p_is_asked AND v_run_id <> r.id THEN
        RAISE EXCEPTION 'the run ''%'' waits for the same call', v_run_id USING ERRCODE = 'TW002';
    END IF;
END $$;

-- One change of a run by its owner: all of it, or nothing. What a change has not is NULL.
CREATE FUNCTION twolane.apply_change(
    p_run json, p_progress bytea, p_answer bytea, p_request bytea, p_flags json, p_steps json, p_approvals json,
    p_moves json, p_events json, p_audit json
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    r twolane.runs := json_populate_record(NULL::twolane.runs, p_run);
    f record;
BEGIN
    r.progress := p_progress;
    r.answer := p_answer;
    SELECT * INTO f FROM json_to_record(p_flags) AS (is_new boolean, repeats boolean, takes_key_of text,
        replaces_request boolean, passes_on boolean, asks_once boolean, awaited_s double precision);
    IF f.is_new AND NOT twolane.insert_run(r, p_request, f.takes_key_of) THEN
        IF NOT f.repeats THEN
            RAISE EXCEPTION 'the run ''%'' is there already', r.id USING ERRCODE = 'TW001';
        END IF;
        f.is_new := false;
        PERFORM twolane.update_run(r, f.passes_on);
    ELSIF NOT f.is_new THEN
        PERFORM twolane.update_run(r, f.passes_on);
    END IF;
    IF f.replaces_request THEN
        UPDATE twolane.requests SET request = p_request WHERE tenant = r.tenant AND run_id = r.id;
    END IF;
    IF p_moves IS NOT NULL THEN
        PERFORM twolane.move_approvals(r.tenant, p_moves, f.repeats);
    END IF;
    IF p_steps IS NOT NULL THEN
        PERFORM twolane.put_steps(p_steps);
    END IF;
    IF p_approvals IS NOT NULL THEN
        PERFORM twolane.add_approvals(p_approvals, f.asks_once);
    END IF;
    IF r.client IS NOT NULL AND (p_approvals IS NOT NULL OR r.state = 'unknown') THEN
        PERFORM twolane.record_undelivered(r, p_approvals IS NOT NULL);
        IF f.awaited_s IS NOT NULL AND p_approvals IS NOT NULL THEN
            INSERT INTO twolane.awaited VALUES (r.tenant, r.id, r.id, r.updated_s + f.awaited_s)
            ON CONFLICT (tenant, run_id, waiter) DO UPDATE SET until_s = excluded.until_s;
        END IF;
    END IF;
    IF NOT twolane.is_alive(r.state) THEN
        PERFORM twolane.cancel_approvals(r.tenant, r.id, r.updated_s);
    END IF;
    IF p_events IS NOT NULL THEN
        PERFORM twolane.add_events(p_events);
    END IF;
    IF p_audit IS NOT NULL THEN
        PERFORM twolane.add_audit(p_audit);
    END IF;
END $$;

-- Changes of runs that waited together. Each is done or not, whatever becomes of the others: return the codes and
-- messages of the errors, NULL where a change is done. The error of a change that came alone is raised.
CREATE FUNCTION twolane.write_changes(
    p_writer text, p_number bigint, p_runs json[], p_progress bytea[], p_answers bytea[], p_requests bytea[],
    p_flags json[], p_steps json[], p_approvals json[], p_moves json[], p_events json[], p_audit json[]
) RETURNS TABLE (code text, message text) LANGUAGE plpgsql AS $$
DECLARE
    v_codes text[] := array_fill(NULL::text, ARRAY[cardinality(p_runs)]);
    v_messages text[] := v_codes;
BEGIN
    IF NOT twolane.begin_write(p_writer, p_number) THEN
        RETURN QUERY SELECT k.code, k.message FROM generate_series(1, cardinality(p_runs)) AS c(place)
            LEFT JOIN jsonb_to_recordset(twolane.kept_result(p_writer)) AS k(place integer, code text, message text)
                ON k.place = c.place
            ORDER BY c.place;
        RETURN;
    END IF;
    IF cardinality(p_runs) = 1 THEN
        PERFORM twolane.apply_change(p_runs[1], p_progress[1], p_answers[1], p_requests[1], p_flags[1], p_steps[1],
            p_approvals[1], p_moves[1], p_events[1], p_audit[1]);
    ELSE
        FOR i IN 1 .. cardinality(p_runs) LOOP
            BEGIN
                PERFORM twolane.apply_change(p_runs[i], p_progress[i], p_answers[i], p_requests[i], p_flags[i],
                    p_steps[i], p_approvals[i], p_moves[i], p_events[i], p_audit[i]);
            EXCEPTION WHEN OTHERS THEN
                -- A refusal, or a value that does not fit, is of this change alone.
                IF SQLSTATE NOT LIKE 'TW%' AND SQLSTATE NOT LIKE '22%' THEN
                    RAISE;
                END IF;
                v_codes[i] := SQLSTATE;
                v_messages[i] := SQLERRM;
            END;
        END LOOP;
    END IF;
    IF num_nonnulls(VARIADIC v_codes) > 0 THEN
        PERFORM twolane.keep_result(p_writer, (SELECT jsonb_agg(jsonb_build_object('place', e.place, 'code', e.code,
            'message', e.message)) FROM unnest(v_codes, v_messages) WITH ORDINALITY e(code, message, place)
            WHERE e.code IS NOT NULL));
    END IF;
    RETURN QUERY SELECT * FROM unnest(v_codes, v_messages);
END $$;

-- Assign runs that nothing drives, longest untouched first, and runs whose lease is over, `p_slack_s` after its end.
-- Without `p_slack_s` no lease is over. Return the runs as they are then, with their requests.
CREATE FUNCTION twolane.claim_runs(
    p_writer text, p_number bigint, p_owner text, p_lease_s double precision, p_slack_s double precision,
    p_far_s double precision, p_states text[], p_run_id text, p_limit integer
) RETURNS TABLE (run twolane.runs, request bytea) LANGUAGE plpgsql AS $$
DECLARE
    v_now_s double precision := twolane.now_s();
    v_over_s double precision := v_now_s - p_slack_s;
    v_keys jsonb;
BEGIN
    IF twolane.begin_write(p_writer, p_number) THEN
        WITH free AS (
            SELECT f.* FROM unnest(p_states) s(state) CROSS JOIN LATERAL (
                SELECT r.tenant, r.id, r.idle_s AS since_s FROM twolane.runs r
                WHERE p_run_id IS NULL AND r.state = s.state AND r.owner IS NULL
                    AND r.state IN ('running', 'awaiting_approval', 'awaiting_client', 'unknown')
                    AND (r.pending = 0 OR r.state <> 'awaiting_approval')
                ORDER BY r.idle_s LIMIT p_limit FOR UPDATE SKIP LOCKED) f
        ), late AS (
            SELECT r.tenant, r.id, r.updated_s AS since_s FROM twolane.runs r
            WHERE p_run_id IS NULL AND r.owner IS NOT NULL
                AND r.state IN ('running', 'awaiting_approval', 'awaiting_client', 'unknown')
                AND (r.lease_s < v_over_s OR r.lease_s > v_over_s + p_far_s)
                AND r.state = ANY (p_states) AND (r.pending = 0 OR r.state <> 'awaiting_approval')
            LIMIT p_limit FOR UPDATE SKIP LOCKED
        ), named AS (
            SELECT r.tenant, r.id, r.updated_s AS since_s FROM twolane.runs r
            WHERE r.id = p_run_id AND r.state IN ('running', 'awaiting_approval', 'awaiting_client', 'unknown')
                AND (r.owner IS NULL OR r.lease_s < v_over_s OR r.lease_s > v_over_s + p_far_s)
                AND r.state = ANY (p_states) AND (r.pending = 0 OR r.state <> 'awaiting_approval')
            LIMIT p_limit FOR UPDATE SKIP LOCKED
        ), chosen AS (
            SELECT * FROM (SELECT * FROM free UNION ALL SELECT * FROM late UNION ALL SELECT * FROM named) c
            ORDER BY since_s LIMIT p_limit
        ), taken AS (
            UPDATE twolane.runs r
            SET owner = p_owner, lease_s = v_now_s + p_lease_s, fence = r.fence + 1, idle_s = NULL
            FROM chosen c WHERE r.tenant = c.tenant AND r.id = c.id RETURNING r.tenant, r.id, c.since_s
        )
        SELECT jsonb_agg(jsonb_build_object('tenant', t.tenant, 'id', t.id) ORDER BY t.since_s) INTO v_keys
        FROM taken t;
        PERFORM twolane.keep_result(p_writer, v_keys);
        IF v_keys IS NULL THEN
            -- Nothing that must outlive a restart of the server: no look waits for the disk.
            PERFORM set_config('synchronous_commit', 'off', true);
        END IF;
    ELSE
        v_keys := twolane.kept_result(p_writer);
    END IF;
    RETURN QUERY
    SELECT r, q.request
    FROM jsonb_array_elements(coalesce(v_keys, '[]')) WITH ORDINALITY AS k(key, place)
    JOIN twolane.runs r ON r.tenant = k.key ->> 'tenant' AND r.id = k.key ->> 'id' AND r.owner = p_owner
    LEFT JOIN twolane.requests q ON q.tenant = r.tenant AND q.run_id = r.id
    ORDER BY k.place;
END $$;

CREATE FUNCTION twolane.renew_runs(
    p_writer text, p_number bigint, p_owner text, p_run_ids text[], p_lease_s double precision
) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    v_until_s double precision := twolane.now_s() + p_lease_s;
BEGIN
    PERFORM twolane.begin_write(p_writer, p_number); -- a second time does no harm
    -- A lease that a restart of the server makes shorter is renewed again: no renewal waits for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN QUERY
    WITH held AS (
        SELECT tenant, id FROM twolane.runs
        WHERE owner = p_owner AND id = ANY (p_run_ids)
            AND state IN ('running', 'awaiting_approval', 'awaiting_client', 'unknown')
        ORDER BY tenant, id FOR UPDATE
    )
    UPDATE twolane.runs r SET lease_s = v_until_s FROM held h WHERE r.tenant = h.tenant AND r.id = h.id
    RETURNING r.id;
END $$;

-- Give up the leases of an owner, whose changes are too late from then on; with `p_run_ids` only those of these runs.
CREATE FUNCTION twolane.release_runs(p_writer text, p_number bigint, p_owner text, p_run_ids text[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_count bigint;
BEGIN
    IF NOT twolane.begin_write(p_writer, p_number) THEN
        RETURN twolane.kept_result(p_writer)::bigint;
    END IF;
    WITH held AS (
        SELECT tenant, id FROM twolane.runs
        WHERE owner = p_owner AND (p_run_ids IS NULL OR id = ANY (p_run_ids))
            AND state IN ('running', 'awaiting_approval', 'awaiting_client', 'unknown')
        ORDER BY tenant, id FOR UPDATE
    )
    UPDATE twolane.runs r
    SET owner = NULL, lease_s = 0, fence = r.fence + (p_run_ids IS NULL)::integer, idle_s = r.updated_s
    FROM held h WHERE r.tenant = h.tenant AND r.id = h.id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    PERFORM twolane.keep_result(p_writer, to_jsonb(v_count));
    RETURN v_count;
END $$;

CREATE FUNCTION twolane.cancel_run(
    p_writer text, p_number bigint, p_tenant text, p_run_id text, p_now_s double precision, p_waiter text,
    p_events json, p_audit json
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT twolane.begin_write(p_writer, p_number) THEN
        RETURN twolane.kept_result(p_writer)::boolean;
    END IF;
    PERFORM twolane.keep_result(p_writer, 'false');
    PERFORM FROM twolane.runs WHERE tenant = p_tenant AND id = p_run_id FOR UPDATE;
    IF p_waiter IS NOT NULL THEN
        DELETE FROM twolane.awaited WHERE tenant = p_tenant AND run_id = p_run_id AND waiter = p_waiter;
        IF EXISTS (SELECT FROM twolane.awaited WHERE tenant = p_tenant AND run_id = p_run_id AND waiter <> p_waiter
            AND until_s > p_now_s)
        THEN
            RETURN false;
        END IF;
    END IF;
    UPDATE twolane.runs SET state = 'cancelled', updated_s = p_now_s, idle_s = p_now_s, owner = NULL, lease_s = 0,
        fence = fence + 1
    WHERE tenant = p_tenant AND id = p_run_id
        AND state IN ('running', 'awaiting_approval', 'awaiting_client', 'unknown');
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM twolane.cancel_approvals(p_tenant, p_run_id, p_now_s);
    PERFORM twolane.add_events(p_events);
    PERFORM twolane.add_audit(p_audit);
    PERFORM twolane.keep_result(p_writer, 'true');
    RETURN true;
END $$;

CREATE FUNCTION twolane.note_late(
    p_writer text, p_number bigint, p_tenant text, p_run_id text, p_step integer, p_late text, p_events json,
    p_audit json
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT twolane.begin_write(p_writer, p_number) THEN
        RETURN;
    END IF;
    PERFORM FROM twolane.runs WHERE tenant = p_tenant AND id = p_run_id FOR UPDATE;
    UPDATE twolane.steps SET late = p_late WHERE tenant = p_tenant AND run_id = p_run_id AND number = p_step;
    PERFORM twolane.add_events(p_events);
    PERFORM twolane.add_audit(p_audit);
END $$;

CREATE FUNCTION twolane.mark_delivered(
    p_writer text, p_number bigint, p_tenant text, p_fingerprint text, p_run_id text
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM twolane.begin_write(p_writer, p_number);
    DELETE FROM twolane.undelivered
    WHERE tenant = p_tenant AND fingerprint = p_fingerprint AND run_id = p_run_id;
END $$;

-- Record until when a request waits for a run; 0: no longer.
CREATE FUNCTION twolane.await_run(
    p_writer text, p_number bigint, p_tenant text, p_run_id text, p_waiter text, p_until_s double precision
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM twolane.begin_write(p_writer, p_number);
    IF p_until_s = 0 THEN
        DELETE FROM twolane.awaited WHERE tenant = p_tenant AND run_id = p_run_id AND waiter = p_waiter;
    ELSE
        INSERT INTO twolane.awaited VALUES (p_tenant, p_run_id, p_waiter, p_until_s)
        ON CONFLICT (tenant, run_id, waiter) DO UPDATE SET until_s = excluded.until_s;
    END IF;
END $$;
