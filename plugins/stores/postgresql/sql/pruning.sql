-- Pruning of runs that ended long ago, with all that belongs to them, and of other old rows of the journal.

-- Delete up to `p_limit` rows of a run, the run itself as the last one. Return how many are gone.
CREATE FUNCTION twolane.prune_run(p_tenant text, p_run_id text, p_limit integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_left integer := p_limit;
    v_count integer;
BEGIN
    DELETE FROM twolane.requests WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM twolane.requests WHERE tenant = p_tenant AND run_id = p_run_id LIMIT v_left));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_left := v_left - v_count;
    DELETE FROM twolane.steps WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM twolane.steps WHERE tenant = p_tenant AND run_id = p_run_id LIMIT v_left));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_left := v_left - v_count;
    DELETE FROM twolane.approvals WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM twolane.approvals WHERE tenant = p_tenant AND run_id = p_run_id LIMIT v_left));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_left := v_left - v_count;
    DELETE FROM twolane.grants WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM twolane.grants WHERE tenant = p_tenant AND run_id = p_run_id LIMIT v_left));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_left := v_left - v_count;
    DELETE FROM twolane.events WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM twolane.events WHERE tenant = p_tenant AND run_id = p_run_id LIMIT v_left));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_left := v_left - v_count;
    IF v_left > 0 THEN
        DELETE FROM twolane.runs WHERE tenant = p_tenant AND id = p_run_id;
        v_left := v_left - 1;
    END IF;
    RETURN p_limit - v_left;
END $$;

CREATE FUNCTION twolane.prune_journal(
    p_writer text, p_number bigint, p_before_s double precision, p_limit integer
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_left integer := p_limit;
    v_count integer;
    r record;
BEGIN
    IF NOT twolane.begin_write(p_writer, p_number) THEN
        RETURN twolane.kept_result(p_writer)::integer;
    END IF;
    PERFORM twolane.seal_events();
    <<all_rows>>
    BEGIN
        FOR r IN SELECT tenant, id FROM twolane.runs WHERE idle_s < p_before_s
            AND state IN ('completed', 'rejected', 'expired', 'failed', 'interrupted', 'cancelled')
            ORDER BY idle_s LIMIT p_limit FOR UPDATE SKIP LOCKED
        LOOP
            v_left := v_left - twolane.prune_run(r.tenant, r.id, v_left);
            EXIT all_rows WHEN v_left <= 0;
        END LOOP;
        FOR r IN SELECT * FROM (VALUES ('grants', 'expires_s'), ('asks', 'expires_s'), ('undelivered', 'created_s'),
            ('awaited', 'until_s')) old(name, time)
        LOOP
            EXECUTE format('DELETE FROM twolane.%1$I WHERE ctid = ANY (ARRAY(SELECT ctid FROM twolane.%1$I
                WHERE %2$I < $1 ORDER BY %2$I LIMIT $2))', r.name, r.time) USING p_before_s, v_left;
            GET DIAGNOSTICS v_count = ROW_COUNT;
            v_left := v_left - v_count;
            EXIT all_rows WHEN v_left <= 0;
        END LOOP;
    END;
    -- Processes that ended long ago write no more.
    DELETE FROM twolane.writers WHERE ctid = ANY (ARRAY(SELECT ctid FROM twolane.writers
        WHERE written_at < now() - interval '7 days' LIMIT p_limit));
    PERFORM twolane.keep_result(p_writer, to_jsonb(p_limit - v_left));
    RETURN p_limit - v_left;
END $$;
