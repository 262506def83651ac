-- Events, and their numbers.
--
-- A writer inserts an event without a number, under the lock of its run: the order of `id` is the order of commits
-- within a run. Readers give numbers, one reader at a time, to the events that they see. So no number
-- appears behind a larger one, and a reader that goes on from a number misses nothing.

CREATE TABLE twolane.new_events (
    id bigint GENERATED ALWAYS AS IDENTITY,
    tenant text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    created_s double precision NOT NULL)
    WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE twolane.events (
    seq bigint PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    created_s double precision NOT NULL);
CREATE INDEX events_by_tenant ON twolane.events (tenant, seq);
CREATE INDEX events_by_run ON twolane.events (tenant, run_id, seq);

INSERT INTO twolane.seals (name, seq) VALUES ('events', 0);

CREATE FUNCTION twolane.add_events(p_events json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO twolane.new_events (tenant, run_id, type, data, created_s)
    SELECT e.tenant, e.run_id, e.type, e.data, e.created_s
    FROM ROWS FROM (json_to_recordset(p_events) AS (tenant text, run_id text, type text, data bytea,
        created_s double precision)) WITH ORDINALITY AS e(tenant, run_id, type, data, created_s, place)
    ORDER BY e.place;
END $$;

-- Number the events that are there, if there are any.
CREATE FUNCTION twolane.seal_events() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_last bigint;
    v_count bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM twolane.new_events) THEN
        RETURN;
    END IF;
    SELECT seq INTO v_last FROM twolane.seals WHERE name = 'events' FOR UPDATE;
    -- The next statement sees all that the sealer before it has committed.
    WITH gone AS (
        DELETE FROM twolane.new_events RETURNING *
    )
    INSERT INTO twolane.events (seq, tenant, run_id, type, data, created_s)
    SELECT v_last + row_number() OVER (ORDER BY id), tenant, run_id, type, data, created_s FROM gone;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    UPDATE twolane.seals SET seq = v_last + v_count WHERE name = 'events' AND v_count > 0;
END $$;

CREATE FUNCTION twolane.read_events(p_after bigint, p_tenant text, p_run_id text, p_limit integer)
RETURNS SETOF twolane.events LANGUAGE plpgsql AS $$
BEGIN
    PERFORM twolane.seal_events();
    IF p_tenant IS NULL AND p_run_id IS NULL THEN
        RETURN QUERY SELECT * FROM twolane.events WHERE seq > p_after ORDER BY seq LIMIT p_limit;
    ELSIF p_run_id IS NULL THEN
        RETURN QUERY SELECT * FROM twolane.events WHERE tenant = p_tenant AND seq > p_after ORDER BY seq LIMIT p_limit;
    ELSE
        RETURN QUERY SELECT * FROM twolane.events
            WHERE (p_tenant IS NULL OR tenant = p_tenant) AND run_id = p_run_id AND seq > p_after
            ORDER BY seq LIMIT p_limit;
    END IF;
END $$;

CREATE FUNCTION twolane.last_event() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM twolane.seal_events();
    RETURN (SELECT seq FROM twolane.seals WHERE name = 'events');
END $$;
