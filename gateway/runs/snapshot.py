"""The stored beginning of a run, for a restart: the client's request without anything secret."""

from typing import Literal

import orjson

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange, Resume
from gateway.contracts.journal import StoredRun


def request_of(exchange: Exchange) -> bytes:
    """Return the parts of an exchange that a run needs to continue after a restart.

    No header and no credential is ever stored.
    """
    return orjson.dumps(
        {
            "body": exchange.body,
            "scopes": sorted(exchange.caller.scopes),
            "prompt": exchange.prompt,
            "user": exchange.user,
            "only_tools": exchange.only_tools,
            "approvals": exchange.approvals,
            "events": exchange.events,
            "workflow": exchange.workflow,
            "credential": bool(exchange.credential),
            "credential_header": exchange.credential_header.decode("latin-1"),
        }
    )


def exchange_of(
    resume: Resume, *, approvals: Literal["hold", "turn", "reject"], header: bytes = b"", credential: bytes = b""
) -> Exchange:
    """Return the exchange of a stored run that continues.

    Facts that were never stored come from the request that brings it.
    """
    run, asked = resume.run, orjson.loads(resume.run.request)
    return Exchange(
        id=run.id,
        body=asked["body"],
        caller=Caller(run.caller, run.tenant, frozenset(asked["scopes"])),
        chain=run.chain,
        prompt=asked["prompt"],
        conversation=run.conversation,
        user=asked.get("user"),
        only_tools=tuple(asked["only_tools"]),
        approvals=approvals,
        fingerprint=run.fingerprint,
        idempotency_key=run.idempotency_key,
        resume=resume,
        events=asked["events"],
        workflow=asked.get("workflow"),
        header=header,
        credential=credential,
        credential_header=asked["credential_header"].encode("latin-1"),
    )


def first_of(exchange: Exchange, *, now_s: float) -> StoredRun:
    """Return the record of a run that begins."""
    return StoredRun(
        id=exchange.id,
        tenant=exchange.caller.tenant,
        caller=exchange.caller.name,
        kind="chat" if exchange.workflow is None else "workflow",
        chain=exchange.chain,
        conversation=exchange.conversation,
        fingerprint=exchange.fingerprint,
        idempotency_key=exchange.idempotency_key,
        state="running",
        effects=False,
        created_s=now_s,
        updated_s=now_s,
        request=request_of(exchange),
        workflow=None if exchange.workflow is None else exchange.workflow["definition"]["name"],
    )


#: The longest result that is stored whole, and the longest one that came after the run had another owner.
RESULT_CHARS, LATE_CHARS = 1 << 20, 1000
