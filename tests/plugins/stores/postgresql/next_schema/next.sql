-- The step of a later version, as a test of what a step may do: gateways of this version go on with it.
--
-- It adds a column that is never NULL to each table, a table, a function, and replaces a function of this version.

DO $$
DECLARE
    v_table text;
BEGIN
    FOR v_table IN SELECT tablename FROM pg_tables WHERE schemaname = 'twolane' ORDER BY tablename LOOP
        EXECUTE format('ALTER TABLE twolane.%I ADD COLUMN further text NOT NULL DEFAULT ''as before''', v_table);
    END LOOP;
END $$;

CREATE TABLE twolane.releases (name text PRIMARY KEY);

CREATE FUNCTION twolane.count_releases() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT count(*) FROM twolane.releases);
END $$;

CREATE OR REPLACE FUNCTION twolane.keep_result(p_writer text, p_result jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE twolane.writers SET result = p_result, further = 'kept' WHERE writer = p_writer;
END $$;
