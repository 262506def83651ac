"""The beginning of a response: its request with what it goes on from, its run, and what is kept of it."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import orjson
from aiohttp import web

from gateway.aio.cooperative import run_aside
from gateway.api.context_request import AdmittedRequest, ContextRequests
from gateway.api.message_tokens import estimate_tokens
from gateway.api.ops_pages import REQUEST_ID
from gateway.api.responses.approval_followup import restore_begun_facts
from gateway.api.responses.compaction_seal import SealFactory
from gateway.api.responses.context_limits import ContextLimits
from gateway.api.responses.idempotency import Repeats
from gateway.api.responses.response_rows import API, build_not_found_error, read_items
from gateway.api.responses.response_store import KeptResponses
from gateway.api.responses.summary import begin_summary, build_summary_facts, read_summary
from gateway.context.lane import Keep
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.contracts.storage.responses import StoredResponse
from gateway.contracts.storage.store import Json, UnwrittenError
from gateway.dialects.responses.answer import ResponseAnswer
from gateway.dialects.responses.conversation import ResponseAsked, can_compact, compact_request, resolve_request
from gateway.dialects.responses.fields import find_compact_threshold
from gateway.dialects.responses.ids import build_response_id, find_run_id, list_request_ids
from gateway.dialects.responses.items import build_input_items
from gateway.dialects.responses.request import ResponseRequest, parse_request_body
from gateway.dialects.responses.response_metadata import ResponseFacts
from gateway.runs.idempotency_key import RequestKey
from gateway.runs.live_run import LiveRun
from gateway.runs.run_id import generate_run_id
from gateway.runs.run_restrictions import build_narrowing, list_narrowings
from gateway.runs.taint_marks import Taints

log = logging.getLogger("gateway")

#: The conversations up to responses that one WebSocket remembers, by their ids.
Local: TypeAlias = Mapping[str, Sequence[Json]]
NOTHING_LOCAL: Final[Local] = {}
#: Stores a response that begins.
Put: TypeAlias = Callable[[StoredResponse], Awaitable[None]]
#: Of an item that only its connection knows, for the choice of where it is worked on.
_ITEM_BYTES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseDraft:
    """A response before its answer. `keep` stores it at its end; None: it is not to be stored.

    `items` are the items of the conversation before its answer.
    """

    answer: ResponseAnswer
    row: StoredResponse
    items: Sequence[Json]
    keep: Keep | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedResponse(ResponseDraft):
    """A response that has begun. `again`: in the background, with an earlier request that had the same key."""

    run: LiveRun
    request_key: RequestKey
    streams: bool
    again: bool


@dataclass(frozen=True, slots=True)
class Creation:
    """The beginning of responses in one worker."""

    requests: ContextRequests
    kept: KeptResponses
    sealing: SealFactory

    @property
    def taints(self) -> Taints:
        """Return the marks of tainted answers."""
        return Taints(self.kept.store, self.kept.clock)

    async def begin(
        self,
        request: web.Request,
        entered: AdmittedRequest,
        wanted: ResponseRequest,
        content: bytes,
        *,
        local: Local = NOTHING_LOCAL,
    ) -> StartedResponse:
        """Begin the response of a request. `local` are responses that only this connection knows.

        Raises UntoldError: its run may have acted, or may do so yet. Raises GatewayError, StoreError, AnsweredBefore:
        nothing has begun then.
        """
        earlier, asked = await self.resolve_request(entered, wanted, content, local=local)
        facts = ResponseFacts.from_request(asked)
        if wanted.compacts:
            return await self._begin_compaction(request, entered, asked, facts, earlier, content=content)
        if (limit := find_compact_threshold(wanted.fields)) is not None and not asked.decisions:
            asked, facts = await self._compact_above(limit, entered, asked, facts, content=content)
        client = self._build_client_record(asked, facts) if wanted.stores else None
        over_http = local is NOTHING_LOCAL  # a message of a WebSocket repeats none
        again = Repeats(self.kept, entered.caller) if wanted.stores and over_http else None
        run, request_key = await self.requests.get_run(request, entered, asked, content, client=client, again=again)
        put = self.kept.store_response if again is None else partial(again.store_response, request_key=request_key)
        with run.convert_store_errors():
            return await self._begin_response(
                entered, asked, facts, earlier, content=content, run=run, request_key=request_key, put=put
            )

    async def _begin_response(
        self,
        entered: AdmittedRequest,
        asked: ResponseAsked,
        facts: ResponseFacts,
        earlier: Sequence[Json],
        *,
        content: bytes,
        run: LiveRun,
        request_key: RequestKey,
        put: Put,
    ) -> StartedResponse:
        """Return the response that a run answers. Raises GatewayError, StoreError, AnsweredBefore; the run goes on."""
        wanted = asked.request
        # An answer apart is there already, and no log belongs to it.
        background = wanted.background and not run.answer.is_apart
        goes_on = run.exchange.id != run.request_id  # another request began the run: it is on record
        is_driven = (
            not goes_on or run.exchange.execution.resume is not None
        )  # here, and not by another request or worker
        if is_driven and (background or (goes_on and run.exchange.delivery.shows_calls)):
            await run.on_record()  # the row is never ahead of its run
        if not is_driven or run.answer.shown_to is not None:
            await self._mark_tainted(run, tenant=entered.caller.tenant)
        if asked.decisions:
            facts = await self._restore_begun_facts(facts, run.exchange)
        draft = await self._draft(
            entered,
            asked,
            facts,
            earlier,
            content=content,
            request_id=run.request_id,
            run_id=run.exchange.id,
            created_s=run.created_s,
            request_key=request_key if goes_on else None,
            decided=run.answer.decided,
            background=background,
        )
        repeats = False
        if background:
            repeats = not await self._record_background(draft.row, run, put)
        elif wanted.stores and goes_on:  # only a row leads from the response to its run
            await put(draft.row)
        return StartedResponse(
            run=run,
            request_key=request_key,
            answer=draft.answer,
            row=draft.row,
            items=draft.items,
            streams=asked.streams,
            keep=draft.keep,
            again=repeats,
        )

    async def _begin_compaction(
        self,
        request: web.Request,
        entered: AdmittedRequest,
        asked: ResponseAsked,
        facts: ResponseFacts,
        earlier: Sequence[Json],
        *,
        content: bytes,
    ) -> StartedResponse:
        """Begin a response whose one item is a compaction. Raises GatewayError, StoreError."""
        if asked.decisions:
            text = "A compaction lets no call run: send approval responses without 'compaction_trigger'."
            raise GatewayError("invalid_field", text, param="input")
        run_id = request[REQUEST_ID] = generate_run_id()
        run = await begin_summary(self.requests, entered, asked.body, run_id=run_id)
        draft = await self._draft(
            entered,
            asked,
            facts,
            earlier,
            content=content,
            request_id=run_id,
            run_id=run_id,
            created_s=run.created_s,
        )
        return StartedResponse(
            run=run,
            request_key=RequestKey(run_id, None, repeats=False),
            answer=draft.answer,
            row=draft.row,
            items=draft.items,
            streams=asked.streams,
            keep=draft.keep,
            again=False,
        )

    async def _compact_above(
        self, limit: int, entered: AdmittedRequest, asked: ResponseAsked, facts: ResponseFacts, *, content: bytes
    ) -> tuple[ResponseAsked, ResponseFacts]:
        """Return a request with a summary in the place of its earlier answers, if it has more tokens than `limit`.

        The estimate is that of the gateway, as no server of models has counted them yet. Raises GatewayError.
        """
        tokens = await run_aside(partial(estimate_tokens, asked.body), content=content)
        if tokens <= limit or not can_compact(asked):
            return asked, facts
        run_id = generate_run_id()
        run = await begin_summary(self.requests, entered, asked.body, run_id=run_id)
        seal = await self.sealing.get_seal(entered.caller.tenant)
        answer = ResponseAnswer(
            build_summary_facts(facts),
            response_id=build_response_id(run_id),
            created_s=run.created_s,
            now_s=self.kept.clock.time,
            seal=seal.seal_summary,
        )
        (item,) = await read_summary(entered, run, answer)
        sealed: str = item["encrypted_content"]
        summarised = compact_request(asked, seal.unseal_summary(sealed))
        log.info("a conversation of about %d tokens, above %d, was compacted by the run %s", tokens, limit, run_id)
        return summarised, replace(facts, compaction=sealed)

    def hold_response(self, begun: StartedResponse, *, streams: bool) -> AbstractContextManager[None]:
        """Return what holds a response while a client reads it. `streams`: event by event."""
        if begun.keep is None:
            return nullcontext()
        return self.kept.hold_response(begun.row, begun.run, streams=streams)

    async def prepare_response(
        self, entered: AdmittedRequest, wanted: ResponseRequest, content: bytes, *, local: Local = NOTHING_LOCAL
    ) -> ResponseDraft:
        """Return a response without a model call. Later responses continue from its input.

        Raises GatewayError, StoreError.
        """
        earlier, asked = await self.resolve_request(entered, wanted, content, local=local)
        if wanted.compacts:
            text = "A compaction calls a model: leave 'generate' out, or the 'compaction_trigger'."
            raise GatewayError("invalid_field", text, param="generate")
        if asked.decisions:
            raise GatewayError(
                "invalid_field",
                "A request with 'generate' false lets no call run: send approval responses without it.",
                param="generate",
            )
        run_id, now_s = generate_run_id(), self.kept.clock.time()
        if asked.wishes.tainted:
            await self.taints.mark(run_id, tenant=entered.caller.tenant)
        facts = ResponseFacts.from_request(asked)
        return await self._draft(
            entered,
            asked,
            facts,
            earlier,
            content=content,
            request_id=run_id,
            run_id=run_id,
            created_s=now_s,
            background=asked.request.background,
        )

    async def _mark_tainted(self, run: LiveRun, *, tenant: str) -> None:
        """Mark a response that has the answer of a run of another request, if that is marked, or may still be.

        One that is about another person's run is marked: it shows calls of a conversation that this one does not have.
        """
        if (
            run.answer.shown_to is not None
            or not run.done
            or await self.taints.is_any_marked([run.exchange.id], tenant=tenant)
        ):
            await self.taints.mark(run.request_id, tenant=tenant)

    async def _restore_begun_facts(self, facts: ResponseFacts, answered: Exchange) -> ResponseFacts:
        """Return the facts of a request that decides, as they are of the run that goes on. Raises StoreError."""
        stored = await self.kept.store.run(answered.id, tenant=answered.caller.tenant)
        if stored is None:
            return facts
        found = await list_narrowings(self.kept.store, stored.id, tenant=stored.tenant)
        resume = answered.execution.resume  # None: another request or worker drives the run
        own = build_narrowing(answered, stored) if resume is None else resume.narrows or {}
        if resume is not None or not own:
            found.append(own)
        return restore_begun_facts(
            facts, orjson.loads(stored.request), narrowings=found, own=own if own in found else None
        )

    async def resolve_request(
        self, entered: AdmittedRequest, wanted: ResponseRequest, content: bytes, *, local: Local = NOTHING_LOCAL
    ) -> tuple[Sequence[Json], ResponseAsked]:
        """Return the items that a request goes on from, and the request as the lane gets it.

        Raises GatewayError, StoreError.
        """
        tenant = entered.caller.tenant
        lane = entered.lane
        bounds = ContextLimits(
            own=[wanted.fields, wanted.input],
            own_bytes=len(content),
            references=wanted.references,
            further=wanted.without_output,
            limit_bytes=lane.bounds.body_bytes,
            limit_values=lane.bounds.body_values,
        )
        earlier = await self._load_earlier_items(wanted, bounds, tenant=tenant, local=local)
        looked_up = (*wanted.without_output, *wanted.claimed)
        referenced = await self.kept.resolve_references(wanted.references, wanted=looked_up, tenant=tenant)
        await run_aside(partial(bounds.refer, referenced), content=content)
        seal = await self.sealing.get_seal(tenant)
        read = partial(resolve_request, wanted, earlier=earlier, referenced=referenced, unseal=seal.unseal_summary)
        asked = await run_aside(read, content=content, more_bytes=bounds.size_bytes)
        if await self.taints.is_any_marked(_collect_answer_names(wanted), tenant=tenant):
            asked = replace(asked, wishes=replace(asked.wishes, tainted=True))
        if asked.decisions and (before := wanted.previous_response_id) is not None and before not in local:
            await self._check_decided(asked, before, earlier, tenant=tenant)
        return earlier, asked

    async def _check_decided(self, asked: ResponseAsked, before: str, earlier: Sequence[Json], *, tenant: str) -> None:
        """Check that decisions are on calls or approvals of runs up to `before`. Raises GatewayError, StoreError."""
        shown = {item["id"].lower() for item in earlier if item["type"] == "mcp_approval_request"}
        runs = {row.run_id for row in await self.kept.load_chain(before, tenant=tenant)}
        for approval_id in {one for decision in asked.decisions for one in decision.ids}.difference(shown):
            approval = await self.kept.store.get_approval(approval_id, tenant=tenant)
            if approval is not None and approval.run_id not in runs:
                raise GatewayError(
                    "invalid_field",
                    f"Nothing was decided: {approval_id} asks about a call of the run {approval.run_id}, which no "
                    f"response up to {before} is of. Leave 'previous_response_id' out, or name the response that asks.",
                    param="previous_response_id",
                )

    async def parse_request(self, entered: AdmittedRequest, body: Json, content: bytes) -> ResponseAsked:
        """Return the request that a JSON object is, as the lane gets it. Raises GatewayError, StoreError."""
        wanted = await run_aside(partial(parse_request_body, body, needs_model=False), content=content)
        return (await self.resolve_request(entered, wanted, content))[1]

    async def _load_earlier_items(
        self, wanted: ResponseRequest, bounds: ContextLimits, *, tenant: str, local: Local
    ) -> Sequence[Json]:
        """Return the items that a request goes on from. Raises GatewayError, StoreError."""
        before = wanted.previous_response_id
        if before is not None:
            param = "previous_response_id"
            if (known := local.get(before)) is not None:
                size_bytes = await run_aside(lambda: len(orjson.dumps(known)), more_bytes=len(known) * _ITEM_BYTES)
                bounds.expect(size_bytes, param=param)
                return await run_aside(partial(bounds.read, [known], param=param), more_bytes=bounds.size_bytes)
            chain = await self.kept.load_chain(before, tenant=tenant)
            bounds.expect(sum(len(row.input) + len(row.output or b"") for row in chain), param=param)
            read = partial(bounds.read, map(read_items, chain), param=param)
            return await run_aside(read, more_bytes=bounds.size_bytes)
        if wanted.conversation_id is None:
            return ()
        return await self._load_conversation(wanted.conversation_id, bounds, tenant=tenant)

    async def _load_conversation(self, conversation_id: str, bounds: ContextLimits, *, tenant: str) -> Sequence[Json]:
        store, param = self.kept.store, "conversation"
        if await store.get_conversation(conversation_id, tenant=tenant) is None:
            raise build_missing_conversation_error()
        items = await store.list_all_items(conversation_id, tenant=tenant)
        bounds.expect(sum(map(len, items)), param=param)
        read = partial(bounds.read, ([orjson.loads(item)] for item in items), param=param)
        return await run_aside(read, more_bytes=bounds.size_bytes)

    def _build_client_record(self, asked: ResponseAsked, facts: ResponseFacts) -> Json:
        """Return what a run stores of its response, so that it can be shown after a crash."""
        wanted = asked.request
        return {
            "api": API,
            "request": facts.stored_json,
            "input": asked.items,
            "previous_id": wanted.previous_response_id,
            "conversation": wanted.conversation_id,
        }

    async def _draft(
        self,
        entered: AdmittedRequest,
        asked: ResponseAsked,
        facts: ResponseFacts,
        earlier: Sequence[Json],
        *,
        content: bytes,
        request_id: str,
        run_id: str,
        created_s: float,
        request_key: RequestKey | None = None,
        decided: Sequence[str] = (),
        background: bool = False,
    ) -> ResponseDraft:
        wanted, response_id = asked.request, build_response_id(request_id)
        told, items = await run_aside(
            partial(_build_stored_forms, asked, facts, response_id=response_id), content=content
        )
        row = StoredResponse(
            id=response_id,
            tenant=entered.caller.tenant,
            caller=entered.caller.name,
            state="queued" if background else "in_progress",
            created_s=created_s,
            run_id=run_id,
            previous_id=wanted.previous_response_id,
            conversation=wanted.conversation_id,
            background=background,
            request=told,
            input=items,
            decides=" ".join(decided),
        )
        if request_key is not None and (key := request_key.idempotency_key) is not None:
            row = replace(row, idempotency_key=key[2], fingerprint=request_key.fingerprint)
        seal = (await self.sealing.get_seal(entered.caller.tenant)).seal_summary if facts.compacts else None
        answer = ResponseAnswer(
            facts,
            response_id=response_id,
            created_s=created_s,
            now_s=self.kept.clock.time,
            background=background,
            seal=seal,
        )
        keep = partial(self.kept.store_ended, row, answer) if wanted.stores else None
        return ResponseDraft(answer=answer, row=row, items=[*earlier, *asked.items], keep=keep)

    async def _record_background(self, row: StoredResponse, run: LiveRun, put: Put) -> bool:
        """Store a background response and record its answer. Return False if an earlier request did so.

        A response with which a run begins is found by that run until the store takes it. Raises GatewayError,
        StoreError, AnsweredBefore.
        """
        kept = self.kept
        if await kept.store.get_response(row.id, tenant=row.tenant) is not None:
            return False
        is_stored = True
        try:
            await put(row)
        except UnwrittenError as error:
            if run.exchange.id != run.request_id:  # only a row leads from the response to its run
                raise
            log.error("the response %s is not stored yet: %s", row.id, error)
            is_stored = False
        kept.record_answer(row, run, fence=await self._get_fence(run, row), is_stored=is_stored)
        return True

    async def _get_fence(self, run: LiveRun, row: StoredResponse) -> int:
        """Return the fence with which this worker has the run: by now the run may be another's. Raises GatewayError."""
        resume = run.exchange.execution.resume
        if resume is not None or run.exchange.id == run.request_id:
            return 0 if resume is None else resume.run.fence
        stored = await self.kept.store.run(row.run_id, tenant=row.tenant)  # this request follows it, or repeats its end
        if stored is None:
            raise build_not_found_error()
        return stored.fence


def _build_stored_forms(asked: ResponseAsked, facts: ResponseFacts, *, response_id: str) -> tuple[bytes, bytes]:
    """Return the facts and the input items of a request, as its response has them in the store."""
    return orjson.dumps(facts.stored_json), orjson.dumps(build_input_items(asked.items, response_id=response_id))


def _collect_answer_names(wanted: ResponseRequest) -> list[str]:
    """Return the names of the answers that a request goes on from, refers to or contains."""
    names = list_request_ids(wanted.input)
    if wanted.previous_response_id is not None:
        names.append(find_run_id(wanted.previous_response_id) or "")
    if wanted.conversation_id is not None:
        names.append(wanted.conversation_id)
    return names


def build_missing_conversation_error() -> GatewayError:
    """Return the error of a missing conversation. A conversation of another tenant gets the same answer."""
    return GatewayError(
        "conversation_not_found",
        "There is no conversation with this id: create one with POST /conversations.",
        param="conversation",
    )
