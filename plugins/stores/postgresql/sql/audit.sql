-- The audit log: one chain of hashes.
--
-- A writer inserts a line without number and hash, so no writer waits for another one. Sealing gives numbers and hashes
-- to the lines that are there, in the order of `id`. The hashes are computed by the client, and written only if the
-- chain still ends where the client read its end.

CREATE TABLE twolane.audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    seq bigint,
    tenant text COLLATE "C" NOT NULL,
    caller text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    step integer NOT NULL,
    event text COLLATE "C" NOT NULL,
    tool text COLLATE "C" NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    decision text COLLATE "C" NOT NULL,
    basis text COLLATE "C" NOT NULL,
    rule text COLLATE "C" NOT NULL,
    "by" text COLLATE "C" NOT NULL,
    via text COLLATE "C" NOT NULL,
    created_s double precision NOT NULL,
    hash text COLLATE "C",
    CHECK ((seq IS NULL) = (hash IS NULL))) WITH (fillfactor = 85);
CREATE UNIQUE INDEX audit_by_number ON twolane.audit (seq);
CREATE INDEX audit_unsealed ON twolane.audit (id) WHERE seq IS NULL;

INSERT INTO twolane.seals (name, seq, hash) VALUES ('audit', 0, repeat('0', 64));

CREATE FUNCTION twolane.refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION 'a line of the audit log is never deleted';
    END IF;
    IF OLD.seq IS NOT NULL OR NEW.seq IS NULL
        OR (to_jsonb(OLD) - 'seq' - 'hash') IS DISTINCT FROM (to_jsonb(NEW) - 'seq' - 'hash')
    THEN
        RAISE EXCEPTION 'a line of the audit log is never changed';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON twolane.audit
    FOR EACH ROW EXECUTE FUNCTION twolane.refuse_audit_change();
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON twolane.audit
    FOR EACH ROW EXECUTE FUNCTION twolane.refuse_audit_change();
CREATE TRIGGER audit_is_not_truncated BEFORE TRUNCATE ON twolane.audit
    FOR EACH STATEMENT EXECUTE FUNCTION twolane.refuse_audit_change();

CREATE FUNCTION twolane.add_audit(p_lines json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO twolane.audit
        (tenant, caller, run_id, step, event, tool, sha256, decision, basis, rule, "by", via, created_s)
    SELECT l.tenant, l.caller, l.run_id, l.step, l.event, l.tool, l.sha256, l.decision, l.basis, l.rule, l."by", l.via,
        l.created_s
    FROM ROWS FROM (json_to_recordset(p_lines) AS (tenant text, caller text, run_id text, step integer, event text,
        tool text, sha256 text, decision text, basis text, rule text, "by" text, via text,
        created_s double precision)) WITH ORDINALITY
        AS l(tenant, caller, run_id, step, event, tool, sha256, decision, basis, rule, "by", via, created_s, place)
    ORDER BY l.place;
END $$;

-- Give the numbers behind `p_last` to these lines. False: the chain goes on elsewhere by now, and nothing has changed.
CREATE FUNCTION twolane.seal_audit(p_last bigint, p_ids bigint[], p_hashes text[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_count bigint;
BEGIN
    PERFORM FROM twolane.seals WHERE name = 'audit' AND seq = p_last FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE twolane.audit a SET seq = p_last + s.place, hash = s.hash
    FROM unnest(p_ids, p_hashes) WITH ORDINALITY AS s(id, hash, place)
    WHERE a.id = s.id AND a.seq IS NULL;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count <> cardinality(p_ids) THEN
        RAISE EXCEPTION 'lines of the audit log are gone that were to be sealed';
    END IF;
    UPDATE twolane.seals SET seq = p_last + v_count, hash = p_hashes[cardinality(p_hashes)] WHERE name = 'audit';
    RETURN true;
END $$;
