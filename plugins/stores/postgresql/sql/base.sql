-- The schema of the store, the database's clock, and the identity of writes.
--
-- 1. Every method of the store that writes is one call of a function, and so one transaction.
-- 2. Each of these functions begins with `begin_write`. A write whose answer was lost is sent again under the same
--    number: it is carried out once, and one that arrives behind a later write of the same writer is refused.
-- 3. A function of a released version keeps its parameters and its result: gateways of two versions use one schema.
-- 4. Whatever adds a row names its columns: a later version may have further ones, which are never NULL there.
-- 5. Text is as the codec of the client writes it (U+0000 is escaped), in the order of its code points.

CREATE SCHEMA twolane;

CREATE TABLE twolane.schema_versions (
    version integer PRIMARY KEY,
    compatible_from integer NOT NULL, -- programs that know this version or a later one can use the schema
    applied_at timestamptz NOT NULL DEFAULT now());

-- The time of all leases, in Unix seconds: the machines of gateways may have clocks that disagree.
CREATE FUNCTION twolane.now_s() RETURNS double precision LANGUAGE sql VOLATILE AS $$
    SELECT extract(epoch FROM clock_timestamp())::double precision
$$;

-- The last write of each connection of each process, and its result.
CREATE TABLE twolane.writers (
    writer text COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL,
    result jsonb,
    written_at timestamptz NOT NULL DEFAULT now()) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- Return whether the write is to be carried out. False: it is done already. The row's lock lasts until the transaction
-- ends, so an attempt that is still under way on a lost connection is waited for.
CREATE FUNCTION twolane.begin_write(p_writer text, p_number bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_number bigint;
BEGIN
    UPDATE twolane.writers SET number = p_number, result = NULL, written_at = now()
    WHERE writer = p_writer AND number < p_number;
    IF FOUND THEN
        RETURN true;
    END IF;
    INSERT INTO twolane.writers (writer, number) VALUES (p_writer, p_number) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN true;
    END IF;
    SELECT number INTO v_number FROM twolane.writers WHERE writer = p_writer;
    IF v_number IS DISTINCT FROM p_number THEN
        RAISE EXCEPTION 'the write % of % is out of date', p_number, p_writer USING ERRCODE = 'TW009';
    END IF;
    RETURN false;
END $$;

-- Keep the result of the write under way, for an attempt that repeats it.
CREATE FUNCTION twolane.keep_result(p_writer text, p_result jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE twolane.writers SET result = p_result WHERE writer = p_writer;
END $$;

CREATE FUNCTION twolane.kept_result(p_writer text) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT result FROM twolane.writers WHERE writer = p_writer);
END $$;

-- What stands in an index for a text of any length: an entry of an index has 2.7 kB at most. The encoding is always the
-- same, so the result is, too.
CREATE FUNCTION twolane.digest(p_text text) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN sha256(convert_to(p_text, 'UTF8'));
END $$;

-- The last numbers that were given to events and to lines of the audit log. A reader that gives numbers locks the row.
CREATE TABLE twolane.seals (
    name text COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL,
    hash text COLLATE "C" NOT NULL DEFAULT '') WITH (fillfactor = 50);
