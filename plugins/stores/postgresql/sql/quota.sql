-- The shares that gateways have of their limits.
--
-- Each call locks the row of its own gateway, and then the rows of its limits in the order of their names. So calls about
-- different limits do not wait for each other, and no two wait in a circle.

CREATE TABLE twolane.quota_gateways (
    gateway text COLLATE "C" PRIMARY KEY,
    turn bigint NOT NULL,
    seen_s double precision NOT NULL,
    alive_s double precision NOT NULL) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- A row for each limit of which a gateway has a share: who changes its shares locks it.
CREATE TABLE twolane.quota_limits (name text COLLATE "C" PRIMARY KEY);

CREATE TABLE twolane.quota_shares (
    name text COLLATE "C" NOT NULL,
    gateway text COLLATE "C" NOT NULL,
    share bigint NOT NULL,
    used bigint NOT NULL,
    needed bigint NOT NULL,
    base bigint NOT NULL,
    lapse_s double precision NOT NULL,
    PRIMARY KEY (name, gateway)) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
-- What a gateway lacks is rare, so it has an index of its own.
CREATE INDEX quota_lacking ON twolane.quota_shares (name) WHERE needed > share;
CREATE INDEX quota_of_gateways ON twolane.quota_shares (gateway);

-- Note that a gateway is here. A call that comes after a later one is refused. After a time without any call, no
-- gateway is gone: the database may have been away. What no share can count of any more is deleted then.
CREATE FUNCTION twolane.see_gateway(
    p_gateway text, p_turn bigint, p_now_s double precision, p_gone_s double precision, p_forgotten_s double precision
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_turn bigint;
BEGIN
    IF (SELECT max(seen_s) FROM twolane.quota_gateways) < p_now_s - p_gone_s / 2 THEN
        PERFORM pg_advisory_xact_lock(hashtext('twolane.quota_gateways'));
        IF (SELECT max(seen_s) FROM twolane.quota_gateways) < p_now_s - p_gone_s / 2 THEN
            UPDATE twolane.quota_gateways SET alive_s = greatest(alive_s, p_now_s + p_gone_s);
            DELETE FROM twolane.quota_shares s USING twolane.quota_gateways g
            WHERE g.gateway = s.gateway AND g.seen_s < p_now_s - p_forgotten_s;
            DELETE FROM twolane.quota_gateways WHERE seen_s < p_now_s - p_forgotten_s;
            DELETE FROM twolane.quota_limits l
            WHERE NOT EXISTS (SELECT FROM twolane.quota_shares s WHERE s.name = l.name);
        END IF;
    END IF;
    INSERT INTO twolane.quota_gateways AS g (gateway, turn, seen_s, alive_s)
    VALUES (p_gateway, p_turn, p_now_s, p_now_s + p_gone_s)
    ON CONFLICT (gateway) DO UPDATE
        SET turn = excluded.turn, seen_s = excluded.seen_s, alive_s = excluded.alive_s WHERE g.turn < excluded.turn;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this call about shares of limits comes after a later one' USING ERRCODE = 'TW001';
    END IF;
END $$;

-- Lock limits, in one order. A row may be deleted while it is waited for; then it is made again.
CREATE FUNCTION twolane.lock_limits(p_names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_count bigint;
    v_found bigint;
BEGIN
    SELECT count(DISTINCT name) INTO v_count FROM unnest(p_names) name;
    LOOP
        INSERT INTO twolane.quota_limits (name) SELECT DISTINCT unnest(p_names) ORDER BY 1 ON CONFLICT DO NOTHING;
        SELECT count(*) INTO v_found FROM (
            SELECT FROM twolane.quota_limits WHERE name = ANY (p_names) ORDER BY name FOR UPDATE
        ) locked;
        EXIT WHEN v_found = v_count;
    END LOOP;
END $$;

-- Write what a gateway holds of limits, and grant what it wants, as far as that is free (`QuotaStore.share_quota`).
-- What only repeats is not written.
CREATE FUNCTION twolane.share_quota(
    p_writer text, p_number bigint, p_gateway text, p_turn bigint, p_gone_s double precision,
    p_forgotten_s double precision, p_names text[], p_limits bigint[], p_bases bigint[], p_held bigint[],
    p_used bigint[], p_wanted bigint[], p_needed bigint[], p_lapses_s double precision[]
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_now_s double precision := twolane.now_s();
    v_result jsonb;
BEGIN
    IF NOT twolane.begin_write(p_writer, p_number) THEN
        RETURN twolane.kept_result(p_writer);
    END IF;
    PERFORM twolane.see_gateway(p_gateway, p_turn, v_now_s, p_gone_s, p_forgotten_s);
    PERFORM twolane.lock_limits(p_names);
    WITH asked AS (
        SELECT * FROM unnest(p_names, p_limits, p_bases, p_held, p_used, p_wanted, p_needed, p_lapses_s)
            WITH ORDINALITY AS a (name, most, base, held, used, wanted, needed, lapse_s, at)
    ), judged AS (
        SELECT a.*, o.shares, o.others_used, a.most - greatest(a.base, o.base) - o.shares AS room
        FROM asked a, LATERAL (
            SELECT coalesce(sum(s.share), 0)::bigint AS shares, coalesce(sum(s.used), 0)::bigint AS others_used,
                coalesce(max(s.base), 0) AS base
            FROM twolane.quota_shares s JOIN twolane.quota_gateways g USING (gateway)
            WHERE s.name = a.name AND s.gateway <> p_gateway AND v_now_s <= CASE
                WHEN s.lapse_s = 0 THEN g.alive_s ELSE g.seen_s + p_gone_s + s.lapse_s END
        ) o
    ), granted AS (
        SELECT j.*, greatest(j.held, least(j.wanted, j.room)) AS share FROM judged j
    ), written AS (
        INSERT INTO twolane.quota_shares AS s (name, gateway, share, used, needed, base, lapse_s)
        SELECT name, p_gateway, share, used, needed, base, lapse_s FROM granted
        WHERE share > 0 OR needed > 0 OR base > 0 ORDER BY name
        ON CONFLICT (name, gateway) DO UPDATE SET share = excluded.share, used = excluded.used,
            needed = excluded.needed, base = excluded.base, lapse_s = excluded.lapse_s
    ), dropped AS (
        DELETE FROM twolane.quota_shares s USING granted g
        WHERE s.name = g.name AND s.gateway = p_gateway AND g.share = 0 AND g.needed = 0 AND g.base = 0
    )
    SELECT jsonb_build_object('grants', coalesce(jsonb_agg(
        jsonb_build_array(share, room - share, others_used, shares - others_used) ORDER BY at), '[]'))
    INTO v_result FROM granted;
    v_result := v_result || jsonb_build_object(
        'gateways', (SELECT count(*) FROM twolane.quota_gateways WHERE alive_s >= v_now_s),
        'lacking', (
            SELECT coalesce(jsonb_agg(DISTINCT o.name), '[]') FROM twolane.quota_shares o
            JOIN twolane.quota_shares own ON own.name = o.name AND own.gateway = p_gateway
            JOIN twolane.quota_gateways g ON g.gateway = o.gateway
            WHERE o.needed > o.share AND o.gateway <> p_gateway AND g.alive_s >= v_now_s));
    PERFORM twolane.keep_result(p_writer, v_result);
    RETURN v_result;
END $$;
