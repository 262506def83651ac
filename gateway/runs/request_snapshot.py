"""The stored beginning of a run, for a restart: the client's request without anything secret."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final, Literal

import orjson

from gateway.contracts.caller import Caller, KeyBounds
from gateway.contracts.canonical_json import write_canonical
from gateway.contracts.exchange import Delivery, Exchange, Execution, Job, Origin, Resume, ToolSteering
from gateway.contracts.records import replace
from gateway.contracts.storage.journal import RunKind, StoredRun
from gateway.contracts.storage.store import Json
from gateway.contracts.tracing.context import RunTrace, TraceContext

#: A request of this size stays as it is when its run ends: to write it anew would cost more than it frees.
SHORT_BYTES: Final = 4096
#: Fields that most requests do not have: stored under their last name, only with another value than this one.
_WISHES: Final[Mapping[str, object]] = {
    "steering.no_tools": False,
    "steering.must_call": False,
    "steering.services": (),
    "steering.ask_first": (),
    "notes": (),
    "steering.max_tool_calls": None,
    "steering.exact_tools": {},
    "delivery.shows_calls": False,
    "delivery.asks_in_text": False,
    "delivery.background": False,
    "execution.tainted": False,
    "delivery.known_as": (),
    "delivery.answer_id": "",
    "origin.answer_ids": (),
    "origin.client": None,
    "job.call": None,
}
_WISH_NAMES: Final = tuple(path.rpartition(".")[2] for path in _WISHES)
_read_wishes: Final = attrgetter(*_WISHES)
#: The longest text in the body of a request that stays when its run ends.
_SHORT_CHARS: Final = 256


def dump_request(exchange: Exchange) -> bytes:
    """Return the parts of an exchange that a run needs to continue after a restart.

    No header and no credential is ever stored.
    """
    steering, origin, trace = exchange.steering, exchange.origin, exchange.execution.trace
    return orjson.dumps(
        {
            "body": exchange.body,
            "scopes": sorted(exchange.caller.scopes),
            **_dump_bounds(exchange.caller.bounds),
            "prompt": exchange.prompt,
            "user": exchange.user,
            "only_tools": steering.only_tools,
            "approvals": steering.approvals,
            "events": exchange.delivery.events,
            "workflow": exchange.job.workflow,
            "credential": bool(origin.credential),
            "credential_header": origin.credential_header.decode("latin-1"),
            **({} if trace is None else {"trace": trace.context, "began_s": trace.began_s}),
            **_dump_optional_fields(exchange),
        }
    )


def _dump_optional_fields(exchange: Exchange) -> Json:
    """Return the fields that this request has and most do not."""
    values = zip(_WISH_NAMES, _WISHES.values(), _read_wishes(exchange), strict=True)
    return {name: value for name, default, value in values if value != default}


def shorten_ended_request(exchange: Exchange, request: bytes) -> bytes | None:
    """Return what is kept of a request whose run ends: without its conversation, as it is never continued. None: all.

    The short values of its body stay, such as its model: answers to later requests state them. A call is in its step.
    A conversation costs the store its length, and not its square, however many of its runs are on record.
    """
    if len(request) <= SHORT_BYTES:
        return None
    if exchange.execution.resume is None:
        return dump_request(
            replace(exchange, body=_shorten_body(exchange.body), notes=(), job=replace(exchange.job, call=None))
        )
    stored = {name: value for name, value in orjson.loads(request).items() if name not in ("call", "notes")}
    return orjson.dumps({**stored, "body": _shorten_body(stored["body"])})


def _shorten_body(body: Json) -> Json:
    """Return a chat completion request without messages, and without what may be long."""
    short = {name: value for name, value in body.items() if not isinstance(value, list | dict)}
    short = {name: value for name, value in short.items() if not isinstance(value, str) or len(value) <= _SHORT_CHARS}
    return {**short, "messages": []}


def load_exchange(
    resume: Resume,
    *,
    approvals: Literal["hold", "turn", "reject"],
    shows_calls: bool | None = None,
    asks_in_text: bool | None = None,
    background: bool | None = None,
    known_as: Sequence[str] = (),
    answer_id: str | None = None,
    header: bytes = b"",
    credential: bytes = b"",
) -> Exchange:
    """Return the exchange of a stored run that continues.

    What was never stored, and each parameter that is not None, is of the request that brings it. `known_as` are further
    names of its answer. A run that began without people (`reject`) goes on without them.
    """
    run, asked = resume.run, orjson.loads(resume.run.request)
    return Exchange(
        id=run.id,
        body=asked["body"],
        caller=_load_caller(run, asked),
        chain=run.chain,
        prompt=asked["prompt"],
        conversation=run.conversation,
        user=asked.get("user"),
        notes=tuple(asked.get("notes", ())),
        steering=_load_steering(asked, approvals=approvals),
        job=Job(workflow=asked.get("workflow"), call=asked.get("call")),
        delivery=Delivery(
            events=asked["events"],
            shows_calls=asked.get("shows_calls", False) if shows_calls is None else shows_calls,
            asks_in_text=asked.get("asks_in_text", False) if asks_in_text is None else asks_in_text,
            background=asked.get("background", False) if background is None else background,
            known_as=tuple(dict.fromkeys((*asked.get("known_as", ()), *known_as))),
            answer_id=asked.get("answer_id", "") if answer_id is None else answer_id,
        ),
        origin=Origin(
            fingerprint=run.fingerprint,
            idempotency_key=run.idempotency_key,
            client=asked.get("client"),
            answer_ids=tuple(asked.get("answer_ids", ())),
            header=header,
            credential=credential,
            credential_header=asked["credential_header"].encode("latin-1"),
        ),
        execution=Execution(
            resume=resume,
            tainted=asked.get("tainted", False),
            trace=RunTrace(TraceContext(**asked["trace"]), asked["began_s"]) if "trace" in asked else None,
        ),
    )


def _load_steering(asked: Json, *, approvals: Literal["hold", "turn", "reject"]) -> ToolSteering:
    """Return the steering of a stored run that continues with a request, which waits for people so."""
    return ToolSteering(
        only_tools=tuple(asked["only_tools"]),
        no_tools=asked.get("no_tools", False),
        must_call=asked.get("must_call", False),
        services=tuple(asked.get("services", ())),
        ask_first=tuple(asked.get("ask_first", ())),
        max_tool_calls=asked.get("max_tool_calls"),
        exact_tools=asked.get("exact_tools", {}),
        approvals="reject" if asked["approvals"] == "reject" else approvals,
    )


def _load_caller(run: StoredRun, asked: Json) -> Caller:
    """Return the caller of a stored run, with the bounds that its calls of models have."""
    bounds = KeyBounds(models=tuple(asked.get("models", ())), upstreams=tuple(asked.get("upstreams", ())))
    return Caller(run.caller, run.tenant, frozenset(asked["scopes"]), bounds)


def _dump_bounds(bounds: KeyBounds) -> Json:
    """Return the limits of the caller that its run keeps, as JSON values."""
    kept = {"models": bounds.models, "upstreams": bounds.upstreams}
    return {name: value for name, value in kept.items() if value}


def build_run_record(exchange: Exchange, *, now_s: float) -> StoredRun:
    """Return the record of a run that begins."""
    job = exchange.job
    return StoredRun(
        id=exchange.id,
        tenant=exchange.caller.tenant,
        caller=exchange.caller.name,
        kind=get_run_kind(exchange),
        chain=exchange.chain,
        conversation=exchange.conversation,
        fingerprint=exchange.origin.fingerprint,
        idempotency_key=exchange.origin.idempotency_key,
        state="running",
        effects=False,
        created_s=now_s,
        updated_s=now_s,
        request=dump_request(exchange),
        workflow=None if job.workflow is None else job.workflow["definition"]["name"],
        tool=job.call["tool"] if job.call is not None and job.is_one_call else None,
        client=dump_client(exchange),
    )


def get_run_kind(exchange: Exchange) -> RunKind:
    """Return the kind of the run of an exchange."""
    if exchange.job.workflow is not None:
        return "workflow"
    return "chat" if exchange.job.call is None else "tool"


def dump_client(exchange: Exchange) -> str | None:
    """Return the facts about the MCP client of a call as JSON, or None for other runs."""
    return (
        None if exchange.job.call is None or exchange.origin.client is None else write_canonical(exchange.origin.client)
    )


#: The longest result that is stored whole, and the longest one that came after the run had another owner.
RESULT_CHARS, LATE_CHARS = 1 << 20, 1000
