-- Remembered decisions, and conversations that ask before every call.

CREATE TABLE twolane.grants (
    id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    caller text COLLATE "C" NOT NULL,
    run_id text COLLATE "C",
    conversation text COLLATE "C",
    tool text COLLATE "C" NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    definition_sha256 text COLLATE "C" NOT NULL,
    policy_sha256 text COLLATE "C" NOT NULL,
    created_s double precision NOT NULL,
    granted_by text COLLATE "C" NOT NULL,
    expires_s double precision,
    approvals integer NOT NULL,
    "user" text COLLATE "C",
    number bigint GENERATED ALWAYS AS IDENTITY, -- the order of grants of the same moment
    PRIMARY KEY (tenant, id));
CREATE INDEX grants_by_call ON twolane.grants (tenant, caller, sha256, created_s, number);
CREATE INDEX grants_by_run ON twolane.grants (tenant, run_id);
CREATE INDEX grants_by_end ON twolane.grants (expires_s);
-- With the end: a list passes over expired ones without a look at the table.
CREATE INDEX grants_by_begin ON twolane.grants (tenant, created_s, number) INCLUDE (expires_s);

CREATE TABLE twolane.asks (
    id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    caller text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    created_s double precision NOT NULL,
    expires_s double precision NOT NULL,
    "user" text COLLATE "C",
    PRIMARY KEY (tenant, id));
CREATE INDEX asks_by_end ON twolane.asks (expires_s);
CREATE INDEX asks_by_begin ON twolane.asks (tenant, created_s, caller, conversation, id) INCLUDE (expires_s, "user");

CREATE FUNCTION twolane.delete_grant(p_writer text, p_number bigint, p_tenant text, p_id text, p_audit json)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT twolane.begin_write(p_writer, p_number) THEN
        RETURN twolane.kept_result(p_writer) IS NOT NULL;
    END IF;
    DELETE FROM twolane.grants WHERE tenant = p_tenant AND id = p_id;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM twolane.add_audit(p_audit);
    PERFORM twolane.keep_result(p_writer, 'true');
    RETURN true;
END $$;

CREATE FUNCTION twolane.put_ask(p_writer text, p_number bigint, p_ask json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM twolane.begin_write(p_writer, p_number); -- a second time does no harm
    INSERT INTO twolane.asks (id, tenant, caller, conversation, created_s, expires_s, "user")
    SELECT a.id, a.tenant, a.caller, a.conversation, a.created_s, a.expires_s, a."user"
    FROM json_populate_record(NULL::twolane.asks, p_ask) a
    ON CONFLICT (tenant, id) DO UPDATE SET expires_s = excluded.expires_s;
END $$;

CREATE FUNCTION twolane.delete_ask(p_writer text, p_number bigint, p_tenant text, p_id text, p_audit json)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT twolane.begin_write(p_writer, p_number) THEN
        RETURN twolane.kept_result(p_writer) IS NOT NULL;
    END IF;
    DELETE FROM twolane.asks WHERE tenant = p_tenant AND id = p_id;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM twolane.add_audit(p_audit);
    PERFORM twolane.keep_result(p_writer, 'true');
    RETURN true;
END $$;
