-- Who is there, at which address, and what runs there once for all.
--
-- Each call locks leases in the order of their names, so no two wait in a circle.

CREATE TABLE twolane.replica_leases (
    name text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    address text COLLATE "C" NOT NULL,
    until_s double precision NOT NULL) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- Take or renew leases, and return all that have not ended. A lease that ends a minute later than a new one was taken by a
-- clock that was ahead. A second time does no harm.
CREATE FUNCTION twolane.hold_leases(
    p_writer text, p_number bigint, p_names text[], p_owner text, p_address text, p_for_s double precision
) RETURNS TABLE (name text, owner text, address text) LANGUAGE plpgsql AS $$
DECLARE
    v_now_s double precision := twolane.now_s();
BEGIN
    PERFORM twolane.begin_write(p_writer, p_number);
    INSERT INTO twolane.replica_leases AS l (name, owner, address, until_s)
    SELECT n.name, p_owner, p_address, v_now_s + p_for_s FROM unnest(p_names) n(name) ORDER BY n.name
    ON CONFLICT ON CONSTRAINT replica_leases_pkey DO UPDATE
        SET owner = excluded.owner, address = excluded.address, until_s = excluded.until_s
        WHERE l.owner = p_owner OR l.until_s < v_now_s OR l.until_s > v_now_s + p_for_s + 60;
    -- Long enough afterwards that its owner cannot be about to renew it: rows are then deleted without a wait.
    DELETE FROM twolane.replica_leases l USING (
        SELECT old.name FROM twolane.replica_leases old WHERE old.until_s < v_now_s - 60 FOR UPDATE SKIP LOCKED) gone
    WHERE l.name = gone.name;
    RETURN QUERY SELECT l.name, l.owner, l.address FROM twolane.replica_leases l
        WHERE l.until_s >= v_now_s ORDER BY l.name;
END $$;

CREATE FUNCTION twolane.release_leases(
    p_writer text, p_number bigint, p_names text[], p_owner text
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM twolane.begin_write(p_writer, p_number); -- a second time does no harm
    DELETE FROM twolane.replica_leases l USING (
        SELECT old.name FROM twolane.replica_leases old
        WHERE old.name = ANY (p_names) AND old.owner = p_owner ORDER BY old.name FOR UPDATE) gone
    WHERE l.name = gone.name;
END $$;
