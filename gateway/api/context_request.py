"""The way of a request into the context lane, which the pages of all dialects share: its caller, its body, its run."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from aiohttp import web

from gateway.aio.cooperative import run_aside
from gateway.api.cancel_ask_before import cancel_ask
from gateway.api.json_body import check_values, read_content
from gateway.api.ops_pages import REQUEST_ID
from gateway.approvals.chat_replies import find_named_approvals, parse_reply
from gateway.auth.keyring import Identify, Identity
from gateway.context.context_headers import parse_context_headers
from gateway.context.lane import ContextLane
from gateway.context.lane_refcount import LaneUse
from gateway.context.prefixed_run import Brought
from gateway.context.resumption import RepeatedRequest, Resumption
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.records import replace
from gateway.contracts.storage.journal import ENDED, StoredRun
from gateway.contracts.storage.store import Json
from gateway.dialects.chat_request import wants_text
from gateway.dialects.dialect import ParsedRequest
from gateway.http.request_head import RequestHead
from gateway.jsontext.strict_json import RepeatedKeyError, check_keys
from gateway.lanes.aiohttp_adapter import add_log_facts, get_head
from gateway.model.call import ModelCall
from gateway.runs.idempotency_key import RequestKey, hash_request
from gateway.runs.live_run import LiveRun
from gateway.runs.run_id import generate_run_id
from gateway.workflows.invocation import build_workflow_usage, find_workflow_call

_MESSAGES: Final = "/messages"
#: Claude Code counts no retries, and repeats a stream that broke without `stream`. So an equal body of the same session
#: of its is the same request, once the first one has lost its client: its agents may send equal bodies at once.
_SESSION: Final = b"x-claude-code-session-id"
_NOT_REPEATED: Final = frozenset(("stream",))


class Again(Protocol):
    """The requests that one request may repeat, as its API has them. What the methods raise ends the request."""

    async def joins(self, run: LiveRun) -> bool:
        """Return whether a request may join the live run that it repeats."""
        ...

    async def check_key(self, request_key: RequestKey, run: StoredRun | None) -> None:
        """Check an Idempotency-Key. `run` is the stored run that a request with it began, if there is one."""
        ...


@dataclass(slots=True, kw_only=True)
class AdmittedRequest:
    """A request whose caller is known, with the configuration that answers it: `async with` lets go of it at its end.

    It is not changed after it is made. Which upstream answers may change how the `caller` is recognised, not its
    tenant.
    """

    lane: ContextLane
    core: ModelCall
    head: RequestHead
    identities: Mapping[bool, Identity]
    caller: Caller
    use: LaneUse

    async def __aenter__(self) -> "AdmittedRequest":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.use.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRequests:
    """The context requests of one worker. `current` returns the lane and the model core in use.

    `admit` raises when the gateway is full. `mark_foreign` marks the answer of a run that is shown to another person.
    """

    current: Callable[[], tuple[ContextLane, ModelCall]]
    resumption: Resumption
    identify: Identify
    admit: Callable[[], None]
    mark_foreign: Callable[[LiveRun], Awaitable[None]]

    def admit_request(self, request: web.Request) -> AdmittedRequest:
        """Admit a request and recognise its caller, before anything of its body is read. Raises GatewayError."""
        self.admit()
        lane, core = self.current()
        head = get_head(request)
        identities = get_identities(head, core, self.identify)
        caller = next(iter(identities.values())).caller
        add_log_facts(request, key=caller.name)
        return AdmittedRequest(
            lane=lane, core=core, head=head, identities=identities, caller=caller, use=lane.open_use()
        )

    async def read_body(self, request: web.Request, entered: AdmittedRequest) -> bytes:
        """Return the body of a request. Raises GatewayError (request_too_large)."""
        lane = entered.lane
        content = await read_content(
            request, entered.caller, limit_bytes=lane.bounds.body_bytes, limit_name="limits.context_body"
        )
        await check_values(content, limit=lane.bounds.body_values)
        return content

    async def get_run(
        self,
        request: web.Request,
        entered: AdmittedRequest,
        asked: ParsedRequest,
        content: bytes,
        *,
        client: Json | None = None,
        again: Again | None = None,
    ) -> tuple[LiveRun, RequestKey]:
        """Return the run that answers a request, and the key by which a repeated request is the same.

        `client` is stored with the run (`Origin.client`). Raises GatewayError, StoreError, and what `again` raises.
        """
        lane, core, head = entered.lane, entered.core, entered.head
        candidates = core.list_candidates(asked.body)
        identity = entered.identities.get(candidates.has_key) or self.identify(head, candidates.has_key, "context")
        candidates = candidates.filter_allowed(identity.caller)
        add_log_facts(request, key=identity.caller.name, upstream=candidates.upstream)
        steering = head.remember_derived(parse_context_headers)
        request_key = await run_aside(
            partial(_build_request_key, head, identity.caller, path=request.path, steering=steering, content=content),
            content=content,
        )
        request_key = lane.runs.mark_as_repeat(request_key)
        run = lane.runs.find(request_key)
        if run is not None and again is not None:
            run.answer.is_deleted = run.answer.is_deleted or not await again.joins(run)
        if run is None or run.answer.is_deleted:
            run_id = request[REQUEST_ID] = generate_run_id()
            exchange = await lane.build_exchange(
                head,
                asked.body,
                identity=identity,
                run_id=run_id,
                request_key=request_key,
                steering=steering,
                wishes=asked.wishes,
                streams=asked.streams or asked.wishes.background,
                client=client,
            )
            repeated = RepeatedRequest(
                body=asked.body,
                request_key=request_key,
                exchange=exchange,
                shown=asked.wishes.shown,
                beside=asked.beside,
            )
            run = await self._run(lane, repeated, asked, content, again=again)
            await self.mark_foreign(run)
        request[REQUEST_ID] = run.request_id
        return run, request_key

    async def _run(
        self, lane: ContextLane, repeated: RepeatedRequest, asked: ParsedRequest, content: bytes, *, again: Again | None
    ) -> LiveRun:
        """Return the run that answers this request.

        It is the run that a decision resumes, the run that the request repeats, or a new run. A message that
        names a workflow starts a run of it. A quotation in a program's own task neither decides nor starts
        anything.
        """
        if repeated.exchange.job.task is not None:
            return await lane.begin(repeated.exchange, repeated.request_key)
        text = asked.text
        typed = parse_reply(text)
        if decisions := asked.decisions or (() if typed is None else (typed,)):
            await run_aside(partial(_check_one_meaning, content), content=content)
            if again is not None and repeated.request_key.idempotency_key is not None:
                await self._find_earlier_run(lane, repeated, again)
            return await self.resumption.decide_and_continue(decisions, repeated)
        if (waits := await self.resumption.find_repeated_run(repeated)) is not None:
            return waits
        stored = await self._find_earlier_run(lane, repeated, again)
        if stored is not None and _has_answer(stored, is_chat=again is None):
            return await self.resumption.repeat(stored, repeated)
        if (named := find_named_approvals(text)) and (
            run := await self.resumption.answer_named_calls(named, repeated)
        ) is not None:
            return run
        called = find_workflow_call(text, lane.workflows)
        exchange = repeated.exchange
        if called is not None:
            exchange = replace(exchange, job=replace(exchange.job, workflow=build_workflow_usage(*called)))
        if stored is not None:
            exchange = replace(exchange, origin=replace(exchange.origin, takes_key_of=stored.id))
        return await lane.begin(
            exchange,
            repeated.request_key,
            detached=exchange.delivery.background,
            brought=await self._prepare_answer_prefix(lane, text, repeated),
        )

    async def _find_earlier_run(
        self, lane: ContextLane, repeated: RepeatedRequest, again: Again | None
    ) -> StoredRun | None:
        """Return the stored run that a request repeats, if there is one. Raises what `again` raises."""
        stored = await lane.earlier(repeated.request_key, repeated.exchange.caller)
        if again is not None and repeated.request_key.idempotency_key is not None:
            await again.check_key(repeated.request_key, stored)
        return stored

    async def _prepare_answer_prefix(self, lane: ContextLane, text: str, repeated: RepeatedRequest) -> Brought | None:
        """Return the source of text that begins the answer, or None if the gateway adds none."""
        if not wants_text(repeated.body):
            return None  # an answer in another format is the client's
        told = await cancel_ask(text, repeated.exchange, lane.approvals.remembered)
        brought = await self.resumption.find_earlier_result(repeated)
        if not told:
            return brought

        async def prepare_both() -> str:
            return told + ("" if brought is None else await brought())

        return prepare_both


def _has_answer(stored: StoredRun, *, is_chat: bool) -> bool:
    """Return whether a request that repeats this run joins it. A response that is over has its answer elsewhere."""
    return stored.effects or stored.state not in ENDED or (is_chat and stored.state == "completed")


def get_identities(head: RequestHead, core: ModelCall, identify: Identify) -> Mapping[bool, Identity]:
    """Return the caller's identities, by whether the upstream has its own key. Raises GatewayError if there is none.

    This happens before the body is read, which names the upstream: the gateway reads no body without a key.
    """
    identities: dict[bool, Identity] = {}
    refusals = []
    for upstream_has_key in core.key_kinds:
        try:
            identities[upstream_has_key] = identify(head, upstream_has_key, "context")
        except GatewayError as error:
            refusals.append(error)
    if not identities:
        raise refusals[0]
    return identities


def _check_one_meaning(content: bytes) -> None:
    """Check that a body which decides has no key twice: others may have read the other value. Raises GatewayError."""
    try:
        check_keys(content)
    except RepeatedKeyError as error:
        text = f"An object in the body has the key {error.key!r} twice, and a decision has one meaning: send it once."
        raise GatewayError("invalid_json", text, param=error.key) from None


def _build_request_key(
    head: RequestHead, caller: Caller, *, path: str, steering: Mapping[str, str], content: bytes
) -> RequestKey:
    key = head.find_value(b"idempotency-key")
    retries = head.find_value(b"x-stainless-retry-count") or b"0"
    is_of_messages = path.removesuffix("/").endswith(_MESSAGES)
    session = head.find_value(_SESSION) if is_of_messages else None
    same = hash_request(
        tenant=caller.tenant,
        caller=caller.name,
        path=path,
        steering=steering if session is None else {**steering, _SESSION.decode(): session.decode("latin-1")},
        content=content,
        ignored=_NOT_REPEATED if is_of_messages else frozenset(),
    )
    return RequestKey(
        same,
        None if key is None else (caller.tenant, caller.name, key.decode("latin-1")),
        repeats=retries.isdigit() and int(retries) > 0,
        size_bytes=len(content),
        may_repeat=session is not None,
    )
