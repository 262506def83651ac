"""The stored part of a request: all that a run needs to go on, and nothing that would let somebody be its client."""

from dataclasses import replace

import orjson

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Delivery, Exchange, Origin, Resume, ToolSteering
from gateway.contracts.storage.journal import StoredRun
from gateway.contracts.storage.store import Json
from gateway.runs.request_snapshot import dump_request, load_exchange, shorten_ended_request
from tests.exchanges import changed, fact_of

BODY: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0}
ASKED = Exchange(
    id="run_1",
    body=BODY,
    caller=Caller("c", "t", frozenset(("context", "approve"))),
    chain="main",
    prompt="p",
    conversation="conv",
    steering=ToolSteering(only_tools=("a", "b_*"), approvals="hold"),
    origin=Origin(
        fingerprint="f",
        idempotency_key="k",
        header=b"X-Secret: one\r\n",
        credential=b"Authorization: Bearer two\r\n",
        credential_header=b"x-api-key",
    ),
    delivery=Delivery(events=True),
)


def stored(exchange: Exchange) -> StoredRun:
    return StoredRun(
        id=exchange.id,
        tenant=exchange.caller.tenant,
        caller=exchange.caller.name,
        chain=exchange.chain,
        conversation=exchange.conversation,
        fingerprint=exchange.origin.fingerprint,
        idempotency_key=exchange.origin.idempotency_key,
        state="running",
        effects=False,
        created_s=1.0,
        updated_s=1.0,
        request=dump_request(exchange),
    )


def test_resumed_exchange_equals_the_stored_one_without_credentials() -> None:
    """The same exchange, but for what is never stored, and for how a person is waited for now."""
    resume = Resume(stored(ASKED))
    again = load_exchange(resume, approvals="turn")
    assert again == replace(
        ASKED,
        origin=replace(ASKED.origin, header=b"", credential=b""),
        steering=replace(ASKED.steering, approvals="turn"),
        execution=replace(ASKED.execution, resume=resume),
    )


def test_resumed_run_keeps_its_approvals_reject_mode() -> None:
    """Its client said that there is no person, and no crash changes that."""
    began = replace(ASKED, steering=replace(ASKED.steering, approvals="reject"))
    assert load_exchange(Resume(stored(began)), approvals="turn").steering.approvals == "reject"


WISHES: Json = {
    "no_tools": True,
    "services": ("weather",),
    "ask_first": ("weather.*",),
    "max_tool_calls": 0,
    "exact_tools": {"shell": {"type": "object"}},
    "shows_calls": True,
    "background": True,
    "tainted": True,
    "client": {},
}


def test_resumed_run_keeps_its_steering_options() -> None:
    """Each wish, whatever its value; the request that brings it on says how it is answered itself."""
    wished = changed(ASKED, **WISHES)
    again = load_exchange(Resume(stored(wished)), approvals="hold")
    assert {name: fact_of(again, name) for name in WISHES} == WISHES
    brought = load_exchange(Resume(stored(wished)), approvals="hold", shows_calls=False, background=False)
    assert (brought.delivery.shows_calls, brought.delivery.background) == (False, False)
    assert load_exchange(Resume(stored(ASKED)), approvals="hold", shows_calls=True).delivery.shows_calls


def test_request_without_options_stores_no_option_fields() -> None:
    """A field that the request leaves out costs no byte, and is missing in runs that are stored already, too."""
    assert not WISHES.keys() & orjson.loads(dump_request(ASKED)).keys()
    assert {name: fact_of(ASKED, name) for name in WISHES} == {
        name: fact_of(load_exchange(Resume(stored(ASKED)), approvals="hold"), name) for name in WISHES
    }


def test_long_request_loses_its_conversation_when_the_run_ends() -> None:
    """All else stays as it was stored, whoever ends the run; a short request is not written again."""
    short: Json = {"model": "m", "temperature": 0.5, "user": None}
    long: Json = {"messages": [{"role": "user", "content": "x" * 5000}], "tools": [{}], "stop": "x" * 300}
    asked = changed(ASKED, body={**short, **long}, **WISHES)
    request = dump_request(asked)
    whole = {**orjson.loads(request), "body": {**short, "messages": []}}
    assert orjson.loads(shorten_ended_request(asked, request) or b"") == whole
    goes_on = load_exchange(Resume(stored(asked)), approvals="hold", shows_calls=False, background=False)
    assert orjson.loads(shorten_ended_request(goes_on, request) or b"") == whole
    assert shorten_ended_request(ASKED, dump_request(ASKED)) is None
    again = load_exchange(Resume(replace(stored(asked), request=orjson.dumps(whole))), approvals="hold")
    assert again.body == {**short, "messages": []} and again.delivery.shows_calls


def test_long_call_is_dropped_from_the_request_when_the_run_ends() -> None:
    """Once its run has ended, as it goes on no more. Its notes, which hold memories, are dropped as well."""
    call = {"tool": "look", "arguments": {"x": "y" * 5000}}
    asked = replace(ASKED, body={"messages": []}, job=replace(ASKED.job, call=call), notes=("a memory",))
    request = dump_request(asked)
    goes_on = load_exchange(Resume(stored(asked)), approvals="turn")
    assert (goes_on.job.call, goes_on.notes) == (asked.job.call, asked.notes)
    for exchange in (asked, goes_on):
        ended = shorten_ended_request(exchange, request)
        assert ended is not None and orjson.loads(ended).keys().isdisjoint(("call", "notes"))


def test_no_header_and_no_credential_is_kept() -> None:
    """Only whether there was a credential, and in which header its client puts it."""
    kept = dump_request(ASKED)
    assert b"one" not in kept and b"two" not in kept
    assert b'"credential":true' in kept and b'"credential":false' in dump_request(
        replace(ASKED, origin=replace(ASKED.origin, credential=b""))
    )


def test_workflow_definition_is_stored_with_its_run() -> None:
    """Whatever becomes of its file; a run that was begun before there were workflows is of none."""
    use: Json = {
        "definition": {"name": "w", "description": "x", "steps": []},
        "parameters": {"text": "{{params.x}} \u2713"},
    }
    asked = replace(ASKED, job=replace(ASKED.job, workflow=use))
    assert load_exchange(Resume(stored(asked)), approvals="hold").job.workflow == use
    old = orjson.loads(dump_request(ASKED))
    del old["workflow"]
    run = replace(stored(ASKED), request=orjson.dumps(old))
    assert load_exchange(Resume(run), approvals="hold").job.workflow is None


def test_resumed_run_uses_header_and_credential_of_the_new_request() -> None:
    """Header lines and credential of the request in which it goes on."""
    again = load_exchange(Resume(stored(ASKED)), approvals="hold", header=b"A: b\r\n", credential=b"C: d\r\n")
    assert (again.origin.header, again.origin.credential, again.steering.approvals) == (
        b"A: b\r\n",
        b"C: d\r\n",
        "hold",
    )
