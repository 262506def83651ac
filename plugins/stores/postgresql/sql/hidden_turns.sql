-- Hidden turns, and the keys by which their answers are recognised. `turn` is NULL where a key came to mean two turns.

CREATE TABLE twolane.hidden (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    start bigint NOT NULL,
    "end" bigint NOT NULL,
    before text COLLATE "C" NOT NULL,
    behind text COLLATE "C" NOT NULL,
    tainted boolean NOT NULL,
    created_s double precision NOT NULL,
    conversation text COLLATE "C",
    PRIMARY KEY (tenant, id));
CREATE INDEX hidden_by_age ON twolane.hidden (created_s);

CREATE TABLE twolane.hidden_keys (
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    turn text COLLATE "C",
    created_s double precision NOT NULL,
    PRIMARY KEY (tenant, key));
CREATE INDEX hidden_keys_by_age ON twolane.hidden_keys (created_s);

-- A key may stand here several times, with one turn or with several. All writers lock rows in the same order.
CREATE FUNCTION twolane.insert_hidden_keys(
    p_tenants text[], p_keys text[], p_turns text[], p_created_s double precision[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO twolane.hidden_keys AS k (tenant, key, turn, created_s)
    SELECT n.tenant, n.key, CASE WHEN min(n.turn) = max(n.turn) THEN min(n.turn) END, max(n.created_s)
    FROM unnest(p_tenants, p_keys, p_turns, p_created_s) n(tenant, key, turn, created_s)
    GROUP BY n.tenant, n.key ORDER BY n.tenant, n.key
    ON CONFLICT (tenant, key) DO UPDATE
        SET turn = CASE WHEN k.turn = excluded.turn THEN k.turn END, created_s = excluded.created_s;
END $$;

CREATE FUNCTION twolane.put_hidden_keys(
    p_writer text, p_number bigint, p_tenants text[], p_keys text[], p_turns text[], p_created_s double precision[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM twolane.begin_write(p_writer, p_number); -- a second time does no harm
    PERFORM twolane.insert_hidden_keys(p_tenants, p_keys, p_turns, p_created_s);
END $$;

CREATE FUNCTION twolane.put_hidden(
    p_writer text, p_number bigint, p_id text, p_run_id text, p_start bigint, p_end bigint, p_before text,
    p_behind text, p_tainted boolean, p_conversation text, p_tenant text, p_created_s double precision, p_keys text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_size integer[] := ARRAY[cardinality(p_keys)];
BEGIN
    PERFORM twolane.begin_write(p_writer, p_number); -- a second time does no harm
    INSERT INTO twolane.hidden (tenant, id, run_id, start, "end", before, behind, tainted, created_s, conversation)
    VALUES (p_tenant, p_id, p_run_id, p_start, p_end, p_before, p_behind, p_tainted, p_created_s, p_conversation)
    ON CONFLICT (tenant, id) DO UPDATE
        SET run_id = excluded.run_id, start = excluded.start, "end" = excluded."end", before = excluded.before,
            behind = excluded.behind, tainted = excluded.tainted, created_s = excluded.created_s,
            conversation = excluded.conversation;
    PERFORM twolane.insert_hidden_keys(array_fill(p_tenant, v_size), p_keys, array_fill(p_id, v_size),
        array_fill(p_created_s, v_size));
END $$;

CREATE FUNCTION twolane.prune_hidden(
    p_writer text, p_number bigint, p_before_s double precision, p_limit bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_keys bigint;
    v_turns bigint;
BEGIN
    IF NOT twolane.begin_write(p_writer, p_number) THEN
        RETURN twolane.kept_result(p_writer)::bigint;
    END IF;
    DELETE FROM twolane.hidden_keys WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM twolane.hidden_keys WHERE created_s < p_before_s LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_keys = ROW_COUNT;
    DELETE FROM twolane.hidden WHERE ctid = ANY (ARRAY(SELECT ctid FROM twolane.hidden
        WHERE created_s < p_before_s LIMIT p_limit - v_keys FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_turns = ROW_COUNT;
    PERFORM twolane.keep_result(p_writer, to_jsonb(v_keys + v_turns));
    RETURN v_keys + v_turns;
END $$;
