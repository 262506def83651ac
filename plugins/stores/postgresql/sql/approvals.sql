-- Approvals: how they are added, decided and ended, each with its events and audit lines.

CREATE TABLE twolane.approvals (
    id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    caller text COLLATE "C" NOT NULL,
    conversation text COLLATE "C",
    run_id text COLLATE "C" NOT NULL,
    step integer NOT NULL,
    tool text COLLATE "C" NOT NULL,
    arguments text COLLATE "C" NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    definition_sha256 text COLLATE "C" NOT NULL,
    policy_sha256 text COLLATE "C" NOT NULL,
    basis text COLLATE "C" NOT NULL,
    rule text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    created_s double precision NOT NULL,
    expires_s double precision NOT NULL,
    decided_s double precision,
    decided_by text COLLATE "C",
    via text COLLATE "C",
    comment text COLLATE "C",
    edited text COLLATE "C",
    remember text COLLATE "C" NOT NULL,
    secret text COLLATE "C" NOT NULL,
    "user" text COLLATE "C",
    client text COLLATE "C",
    required integer NOT NULL,
    given text COLLATE "C" NOT NULL,
    assigned text COLLATE "C",
    notes text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY, -- the order of approvals of the same moment
    PRIMARY KEY (id, tenant)) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX approvals_by_begin ON twolane.approvals (tenant, created_s, number);
CREATE INDEX approvals_by_state ON twolane.approvals (tenant, state, created_s, number);
CREATE INDEX approvals_by_run ON twolane.approvals (tenant, run_id, created_s, number);
CREATE INDEX approvals_by_conversation ON twolane.approvals (tenant, conversation, created_s, number)
    WHERE conversation IS NOT NULL;
CREATE INDEX approvals_by_call ON twolane.approvals (tenant, sha256, created_s, number);
CREATE INDEX approvals_by_urgency ON twolane.approvals (tenant, expires_s, created_s, id) WHERE state = 'pending';
CREATE INDEX approvals_pending ON twolane.approvals (expires_s) INCLUDE (created_s) WHERE state = 'pending';

-- `runs.pending` counts the approvals of a run that wait.
CREATE FUNCTION twolane.count_pending() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE twolane.runs SET pending = pending + CASE WHEN NEW.state = 'pending' THEN 1 ELSE -1 END
    WHERE tenant = NEW.tenant AND id = NEW.run_id;
    RETURN NULL;
END $$;

CREATE TRIGGER approvals_are_asked AFTER INSERT ON twolane.approvals
    FOR EACH ROW WHEN (NEW.state = 'pending') EXECUTE FUNCTION twolane.count_pending();
CREATE TRIGGER approvals_are_resolved AFTER UPDATE OF state ON twolane.approvals
    FOR EACH ROW WHEN (OLD.state = 'pending' AND NEW.state <> 'pending') EXECUTE FUNCTION twolane.count_pending();

CREATE FUNCTION twolane.add_approvals(p_approvals json, p_asks_once boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    a twolane.approvals;
BEGIN
    FOR a IN SELECT * FROM json_populate_recordset(NULL::twolane.approvals, p_approvals) LOOP
        IF p_asks_once THEN
            -- A run that asks for the same call at the same time waits here.
            PERFORM pg_advisory_xact_lock(hashtextextended(concat_ws(chr(10), a.tenant, a.sha256, a.caller,
                a.conversation, a."user"), 0));
            IF EXISTS (SELECT FROM twolane.approvals o WHERE o.tenant = a.tenant AND o.sha256 = a.sha256
                AND o.state = 'pending' AND o.caller = a.caller
                AND o.conversation IS NOT DISTINCT FROM a.conversation AND o."user" IS NOT DISTINCT FROM a."user"
                AND o.run_id <> a.run_id AND o.expires_s > a.created_s)
            THEN
                RAISE EXCEPTION 'another run waits for the call of the approval ''%''', a.id USING ERRCODE = 'TW002';
            END IF;
        END IF;
        INSERT INTO twolane.approvals (id, tenant, caller, conversation, run_id, step, tool, arguments, sha256,
            definition_sha256, policy_sha256, basis, rule, reason, state, created_s, expires_s, decided_s, decided_by,
            via, comment, edited, remember, secret, "user", client, required, given, assigned, notes)
        VALUES (a.id, a.tenant, a.caller, a.conversation, a.run_id, a.step, a.tool, a.arguments, a.sha256,
            a.definition_sha256, a.policy_sha256, a.basis, a.rule, a.reason, a.state, a.created_s, a.expires_s,
            a.decided_s, a.decided_by, a.via, a.comment, a.edited, a.remember, a.secret, a."user", a.client,
            a.required, a.given, a.assigned, a.notes)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the approval ''%'' is there already', a.id USING ERRCODE = 'TW001';
        END IF;
    END LOOP;
END $$;

-- Where the write repeats another one, that may have moved an approval already.
CREATE FUNCTION twolane.move_approvals(p_tenant text, p_moves json, p_repeats boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    m record;
BEGIN
    FOR m IN SELECT * FROM json_to_recordset(p_moves) AS (approval_id text, expected text, "to" text) LOOP
        UPDATE twolane.approvals SET state = m."to" WHERE tenant = p_tenant AND id = m.approval_id
            AND (state = m.expected OR (p_repeats AND state IN (m."to", 'executing')));
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the approval ''%'' is not ''%''', m.approval_id, m.expected USING ERRCODE = 'TW001';
        END IF;
    END LOOP;
END $$;

-- Add the event and the audit line of approvals that ended without a person, in their order.
CREATE FUNCTION twolane.record_ends(p_ended twolane.approvals[], p_now_s double precision) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO twolane.new_events (tenant, run_id, type, data, created_s)
    SELECT a.tenant, a.run_id, 'approval.resolved', convert_to(format('{"approval_id": %s, "state": "%s"}',
        to_json(a.id), a.state), 'UTF8'), p_now_s
    FROM unnest(p_ended) a ORDER BY a.created_s, a.id;
    INSERT INTO twolane.audit
        (tenant, caller, run_id, step, event, tool, sha256, decision, basis, rule, "by", via, created_s)
    SELECT a.tenant, a.caller, a.run_id, a.step, a.state, a.tool, a.sha256, a.state, a.basis, a.rule, '', '', p_now_s
    FROM unnest(p_ended) a ORDER BY a.created_s, a.id;
END $$;

-- Cancel the approvals of a run whose calls will not run any more.
CREATE FUNCTION twolane.cancel_approvals(p_tenant text, p_run_id text, p_now_s double precision) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_ended twolane.approvals[];
BEGIN
    WITH ended AS (
        UPDATE twolane.approvals SET state = 'cancelled'
        WHERE tenant = p_tenant AND run_id = p_run_id AND state IN ('pending', 'approved') RETURNING *
    )
    SELECT array_agg(e::twolane.approvals) INTO v_ended FROM ended e;
    IF v_ended IS NOT NULL THEN
        PERFORM twolane.record_ends(v_ended, p_now_s);
    END IF;
END $$;

-- Lock the runs of these approvals, then the approvals: in the order in which everybody locks them.
CREATE FUNCTION twolane.lock_approvals(p_tenants text[], p_ids text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM twolane.runs r WHERE (r.tenant, r.id) IN (
            SELECT a.tenant, a.run_id FROM unnest(p_tenants, p_ids) k(tenant, id)
            JOIN twolane.approvals a ON a.tenant = k.tenant AND a.id = k.id)
        ORDER BY r.tenant, r.id FOR UPDATE;
    PERFORM FROM twolane.approvals a WHERE (a.tenant, a.id) IN (SELECT * FROM unnest(p_tenants, p_ids))
        ORDER BY a.tenant, a.id FOR UPDATE;
END $$;

-- Return the result that a decision would have on an approval as it is. One whose time is over expires.
CREATE FUNCTION twolane.examine_decision(p_write json) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    a twolane.approvals;
    v_now_s double precision := (p_write ->> 'now_s')::double precision;
    v_edited text := p_write ->> 'edited';
    v_is_alike boolean;
BEGIN
    SELECT * INTO a FROM twolane.approvals WHERE tenant = p_write ->> 'tenant' AND id = p_write ->> 'approval_id';
    IF NOT FOUND THEN
        RETURN 'absent';
    ELSIF a.state = 'expired' THEN
        RETURN 'expired';
    ELSIF a.state <> 'pending' THEN
        v_is_alike := CASE WHEN (p_write ->> 'approve')::boolean
            THEN a.state IN ('approved', 'executing', 'done', 'failed', 'unknown')
                AND (v_edited IS NULL OR v_edited IS NOT DISTINCT FROM a.edited)
            ELSE a.state = 'rejected' END;
        RETURN CASE WHEN v_is_alike THEN 'same' ELSE 'other' END;
    ELSIF a.expires_s <= v_now_s THEN
        UPDATE twolane.approvals SET state = 'expired' WHERE tenant = a.tenant AND id = a.id RETURNING * INTO a;
        PERFORM twolane.record_ends(ARRAY[a], v_now_s);
        RETURN 'expired';
    ELSIF p_write ->> 'seen' IS DISTINCT FROM a.given AND p_write ->> 'seen' IS NOT NULL THEN
        RETURN 'moved';
    END IF;
    RETURN 'decided';
END $$;

-- Decide on a pending approval, or endorse it.
CREATE FUNCTION twolane.apply_decision(p_write json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF (p_write ->> 'settles')::boolean THEN
        UPDATE twolane.approvals SET state = CASE WHEN (p_write ->> 'approve')::boolean THEN 'approved'
                ELSE 'rejected' END, decided_s = (p_write ->> 'now_s')::double precision,
            decided_by = p_write ->> 'by', via = p_write ->> 'via', comment = p_write ->> 'comment',
            edited = p_write ->> 'edited', remember = p_write ->> 'remember',
            given = coalesce(p_write ->> 'given', given)
        WHERE tenant = p_write ->> 'tenant' AND id = p_write ->> 'approval_id';
    ELSE
        UPDATE twolane.approvals SET given = p_write ->> 'given', edited = p_write ->> 'edited'
        WHERE tenant = p_write ->> 'tenant' AND id = p_write ->> 'approval_id';
    END IF;
    IF p_write ->> 'grant' IS NOT NULL THEN
        INSERT INTO twolane.grants (id, tenant, caller, run_id, conversation, tool, sha256, definition_sha256,
            policy_sha256, created_s, granted_by, expires_s, approvals, "user")
        SELECT g.id, g.tenant, g.caller, g.run_id, g.conversation, g.tool, g.sha256, g.definition_sha256,
            g.policy_sha256, g.created_s, g.granted_by, g.expires_s, g.approvals, g."user"
        FROM json_populate_record(NULL::twolane.grants, p_write -> 'grant') g;
    END IF;
    PERFORM twolane.add_events(p_write -> 'events');
    PERFORM twolane.add_audit(p_write -> 'audit');
END $$;

-- Decide several approvals, all of them or none, and then the others that are decided with them, as far as they wait.
CREATE FUNCTION twolane.decide(p_writer text, p_number bigint, p_writes json, p_others json)
RETURNS TABLE (result text, approval twolane.approvals) LANGUAGE plpgsql AS $$
DECLARE
    v_results text[] := '{}';
    v_write json;
BEGIN
    IF twolane.begin_write(p_writer, p_number) THEN
        PERFORM twolane.lock_approvals(array_agg(w ->> 'tenant'), array_agg(w ->> 'approval_id'))
        FROM (SELECT * FROM json_array_elements(p_writes) UNION ALL SELECT * FROM json_array_elements(p_others)) e(w);
        FOR v_write IN SELECT * FROM json_array_elements(p_writes) LOOP
            v_results := v_results || twolane.examine_decision(v_write);
        END LOOP;
        IF v_results <@ ARRAY['decided', 'same'] THEN
            PERFORM twolane.apply_decision(w) FROM ROWS FROM (json_array_elements(p_writes), unnest(v_results)) d(w, r)
            WHERE r = 'decided';
            FOR v_write IN SELECT * FROM json_array_elements(p_others) LOOP
                IF twolane.examine_decision(v_write) = 'decided' THEN
                    PERFORM twolane.apply_decision(v_write);
                END IF;
            END LOOP;
        ELSE
            v_results := array_replace(v_results, 'decided', 'held');
        END IF;
        PERFORM twolane.keep_result(p_writer, to_jsonb(v_results));
    ELSE
        SELECT array_agg(k.r ORDER BY k.place) INTO v_results
        FROM jsonb_array_elements_text(twolane.kept_result(p_writer)) WITH ORDINALITY k(r, place);
    END IF;
    RETURN QUERY
    SELECT d.r, a FROM ROWS FROM (json_array_elements(p_writes), unnest(v_results)) WITH ORDINALITY d(w, r, place)
    LEFT JOIN twolane.approvals a ON a.tenant = d.w ->> 'tenant' AND a.id = d.w ->> 'approval_id'
    ORDER BY d.place;
END $$;

-- Assign a pending approval ('': to no one any more), or note something on it.
CREATE FUNCTION twolane.note_approval(
    p_writer text, p_number bigint, p_tenant text, p_id text, p_assigned text, p_note text, p_now_s double precision,
    p_event text, p_data bytea, p_word text, p_by text, p_via text
) RETURNS SETOF twolane.approvals LANGUAGE plpgsql AS $$
DECLARE
    a twolane.approvals;
BEGIN
    IF NOT twolane.begin_write(p_writer, p_number) THEN
        RETURN QUERY SELECT * FROM twolane.approvals
            WHERE tenant = p_tenant AND id = p_id AND twolane.kept_result(p_writer) IS NOT NULL;
        RETURN;
    END IF;
    PERFORM twolane.lock_approvals(ARRAY[p_tenant], ARRAY[p_id]);
    UPDATE twolane.approvals SET
        assigned = CASE WHEN p_assigned IS NULL THEN assigned ELSE nullif(p_assigned, '') END,
        notes = CASE WHEN p_note IS NULL THEN notes WHEN notes = '[]' THEN '[' || p_note || ']'
            ELSE left(notes, -1) || ',' || p_note || ']' END
    WHERE tenant = p_tenant AND id = p_id AND state = 'pending' RETURNING * INTO a;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO twolane.new_events (tenant, run_id, type, data, created_s)
    VALUES (p_tenant, a.run_id, 'approval.' || p_event, p_data, p_now_s);
    INSERT INTO twolane.audit
        (tenant, caller, run_id, step, event, tool, sha256, decision, basis, rule, "by", via, created_s)
    VALUES (p_tenant, a.caller, a.run_id, a.step, p_event, a.tool, a.sha256, p_word, a.basis, a.rule, p_by, p_via,
        p_now_s);
    PERFORM twolane.keep_result(p_writer, 'true');
    RETURN NEXT a;
END $$;

CREATE FUNCTION twolane.reissue_approval(
    p_writer text, p_number bigint, p_old_id text, p_approval json, p_events json
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    a twolane.approvals := json_populate_record(NULL::twolane.approvals, p_approval);
    v_old twolane.approvals;
BEGIN
    IF NOT twolane.begin_write(p_writer, p_number) THEN
        RETURN twolane.kept_result(p_writer) IS NOT NULL;
    END IF;
    PERFORM twolane.lock_approvals(ARRAY[a.tenant], ARRAY[p_old_id]);
    UPDATE twolane.approvals SET state = 'cancelled' WHERE tenant = a.tenant AND id = p_old_id AND state = 'pending'
    RETURNING * INTO v_old;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM twolane.add_approvals(json_build_array(p_approval), false);
    UPDATE twolane.steps SET approval_id = a.id
    WHERE tenant = a.tenant AND run_id = a.run_id AND number = a.step AND approval_id = p_old_id;
    PERFORM twolane.record_ends(ARRAY[v_old], a.created_s);
    PERFORM twolane.add_events(p_events);
    PERFORM twolane.keep_result(p_writer, 'true');
    RETURN true;
END $$;

-- End pending approvals whose time is over, the longest over first.
CREATE FUNCTION twolane.expire_approvals(
    p_writer text, p_number bigint, p_now_s double precision, p_limit integer
) RETURNS SETOF twolane.approvals LANGUAGE plpgsql AS $$
DECLARE
    v_tenants text[];
    v_ids text[];
    v_ended twolane.approvals[];
BEGIN
    IF NOT twolane.begin_write(p_writer, p_number) THEN
        RETURN QUERY SELECT a.* FROM jsonb_to_recordset(twolane.kept_result(p_writer)) AS k(tenant text, id text)
            JOIN twolane.approvals a ON a.tenant = k.tenant AND a.id = k.id ORDER BY a.created_s, a.id;
        RETURN;
    END IF;
    SELECT array_agg(tenant), array_agg(id) INTO v_tenants, v_ids FROM (
        SELECT tenant, id FROM twolane.approvals WHERE state = 'pending' AND expires_s <= p_now_s
        ORDER BY expires_s LIMIT p_limit) over;
    IF v_ids IS NULL THEN
        RETURN;
    END IF;
    PERFORM twolane.lock_approvals(v_tenants, v_ids);
    WITH ended AS (
        UPDATE twolane.approvals a SET state = 'expired' FROM unnest(v_tenants, v_ids) k(tenant, id)
        WHERE a.tenant = k.tenant AND a.id = k.id AND a.state = 'pending' AND a.expires_s <= p_now_s RETURNING a.*
    )
    SELECT array_agg(e::twolane.approvals ORDER BY e.created_s, e.id) INTO v_ended FROM ended e;
    IF v_ended IS NULL THEN
        RETURN;
    END IF;
    PERFORM twolane.record_ends(v_ended, p_now_s);
    PERFORM twolane.keep_result(p_writer,
        (SELECT jsonb_agg(jsonb_build_object('tenant', e.tenant, 'id', e.id)) FROM unnest(v_ended) e));
    RETURN QUERY SELECT * FROM unnest(v_ended);
END $$;
