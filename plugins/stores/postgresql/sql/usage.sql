-- The usage by day, key, model, upstream and lane.

CREATE TABLE twolane.usage (
    tenant text COLLATE "C" NOT NULL,
    day text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    upstream text COLLATE "C" NOT NULL,
    lane text COLLATE "C" NOT NULL,
    currency text COLLATE "C" NOT NULL,
    requests bigint NOT NULL,
    rejected bigint NOT NULL,
    cut bigint NOT NULL,
    estimated bigint NOT NULL,
    input bigint NOT NULL,
    cached bigint NOT NULL,
    output bigint NOT NULL,
    reasoning bigint NOT NULL,
    cost bigint NOT NULL,
    PRIMARY KEY (tenant, day, key, model, upstream, lane, currency));
CREATE INDEX usage_by_day ON twolane.usage (day);

-- The processes that may have usage which is not stored yet, and the number of the last addition of each. A row outlives
-- the last addition for a while: an attempt of it that was given up may still come.
CREATE TABLE twolane.usage_writers (
    writer text COLLATE "C" PRIMARY KEY,
    added_s double precision NOT NULL,
    number bigint NOT NULL,
    has_more boolean NOT NULL DEFAULT true);

-- How often the usage of a day has changed.
CREATE TABLE twolane.usage_days (day text COLLATE "C" PRIMARY KEY, changes bigint NOT NULL);

-- Add the usage of a process, unless an addition of it with this number, or with a later one, is there. No count becomes
-- more than `p_most`. All processes lock rows in the same order.
CREATE FUNCTION twolane.add_usage(
    p_writer text, p_number bigint, p_process text, p_addition bigint, p_now_s double precision, p_most bigint,
    p_days text[], p_tenants text[], p_keys text[], p_models text[], p_upstreams text[], p_lanes text[],
    p_currencies text[], p_requests bigint[], p_rejected bigint[], p_cut bigint[], p_estimated bigint[],
    p_input bigint[], p_cached bigint[], p_output bigint[], p_reasoning bigint[], p_cost bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT twolane.begin_write(p_writer, p_number) THEN
        RETURN;
    END IF;
    INSERT INTO twolane.usage_writers AS w (writer, added_s, number) VALUES (p_process, p_now_s, p_addition)
    ON CONFLICT (writer) DO UPDATE SET added_s = excluded.added_s, number = excluded.number, has_more = true
        WHERE w.number < excluded.number;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO twolane.usage AS u (day, tenant, key, model, upstream, lane, currency, requests, rejected, cut,
        estimated, input, cached, output, reasoning, cost)
    SELECT day, tenant, key, model, upstream, lane, currency, least(sum(requests), p_most),
        least(sum(rejected), p_most), least(sum(cut), p_most), least(sum(estimated), p_most),
        least(sum(input), p_most), least(sum(cached), p_most), least(sum(output), p_most),
        least(sum(reasoning), p_most), least(sum(cost), p_most)
    FROM unnest(p_days, p_tenants, p_keys, p_models, p_upstreams, p_lanes, p_currencies, p_requests, p_rejected,
        p_cut, p_estimated, p_input, p_cached, p_output, p_reasoning, p_cost)
        n(day, tenant, key, model, upstream, lane, currency, requests, rejected, cut, estimated, input, cached,
            output, reasoning, cost)
    GROUP BY tenant, day, key, model, upstream, lane, currency
    ORDER BY tenant, day, key, model, upstream, lane, currency
    ON CONFLICT (tenant, day, key, model, upstream, lane, currency) DO UPDATE SET
        requests = least(u.requests + excluded.requests, p_most),
        rejected = least(u.rejected + excluded.rejected, p_most), cut = least(u.cut + excluded.cut, p_most),
        estimated = least(u.estimated + excluded.estimated, p_most), input = least(u.input + excluded.input, p_most),
        cached = least(u.cached + excluded.cached, p_most), output = least(u.output + excluded.output, p_most),
        reasoning = least(u.reasoning + excluded.reasoning, p_most), cost = least(u.cost + excluded.cost, p_most);
    INSERT INTO twolane.usage_days AS d (day, changes) SELECT DISTINCT unnest(p_days), 1 ORDER BY 1
    ON CONFLICT (day) DO UPDATE SET changes = d.changes + 1;
END $$;

CREATE FUNCTION twolane.end_usage(p_writer text, p_number bigint, p_process text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM twolane.begin_write(p_writer, p_number); -- a second time does no harm
    UPDATE twolane.usage_writers SET has_more = false WHERE writer = p_process;
END $$;

-- Forget the processes that added nothing since. Return of those that may have had more when each added for the last time.
CREATE FUNCTION twolane.forget_lost_usage(
    p_writer text, p_number bigint, p_before_s double precision
) RETURNS SETOF double precision LANGUAGE plpgsql AS $$
DECLARE
    v_lost jsonb;
BEGIN
    IF twolane.begin_write(p_writer, p_number) THEN
        WITH lost AS (
            DELETE FROM twolane.usage_writers WHERE added_s < p_before_s RETURNING added_s, has_more
        )
        SELECT jsonb_agg(added_s ORDER BY added_s) INTO v_lost FROM lost WHERE has_more;
        PERFORM twolane.keep_result(p_writer, v_lost);
    ELSE
        v_lost := twolane.kept_result(p_writer);
    END IF;
    RETURN QUERY SELECT value::double precision FROM jsonb_array_elements(coalesce(v_lost, '[]'));
END $$;

CREATE FUNCTION twolane.prune_usage(p_writer text, p_number bigint, p_before text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_gone bigint;
BEGIN
    IF NOT twolane.begin_write(p_writer, p_number) THEN
        RETURN twolane.kept_result(p_writer)::bigint;
    END IF;
    DELETE FROM twolane.usage_days WHERE day < p_before;
    DELETE FROM twolane.usage WHERE day < p_before;
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    PERFORM twolane.keep_result(p_writer, to_jsonb(v_gone));
    RETURN v_gone;
END $$;
