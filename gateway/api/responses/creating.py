"""The beginning of a response: its request with what it goes on from, its run, and what is kept of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import orjson
from aiohttp import web

from gateway.api.asking import ContextRequests, Entered
from gateway.api.content import aside
from gateway.api.responses.kept import API, KeptResponses, items_of, not_found
from gateway.api.responses.sealing import Sealing
from gateway.context.lane import Keep
from gateway.contracts.responses import StoredResponse
from gateway.contracts.store import Json
from gateway.dialects.responses.answer import ResponseAnswer
from gateway.dialects.responses.conversation import ResponseAsked, asked_of
from gateway.dialects.responses.facts import ResponseFacts
from gateway.dialects.responses.ids import response_id_of
from gateway.dialects.responses.items import listed
from gateway.dialects.responses.request import ResponseRequest, request_from, request_of
from gateway.errors import GatewayError
from gateway.runs.asking import RequestKey
from gateway.runs.live import LiveRun

#: The conversations up to responses that one WebSocket remembers, by their ids.
Local: TypeAlias = Mapping[str, Sequence[Json]]
NOTHING_LOCAL: Final[Local] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A response that has begun. `keep` stores it at its end; None: it is not to be stored.

    `items` are those of the conversation before its answer.
    """

    run: LiveRun
    request_key: RequestKey
    answer: ResponseAnswer
    row: StoredResponse
    items: Sequence[Json]
    streams: bool
    keep: Keep | None


@dataclass(frozen=True, slots=True)
class Creation:
    """The beginning of responses in one worker."""

    requests: ContextRequests
    kept: KeptResponses
    sealing: Sealing

    async def begin(
        self, request: web.Request, entered: Entered, content: bytes, *, local: Local = NOTHING_LOCAL
    ) -> Begun:
        """Begin the response that a body asks for. `local` are responses that only this connection knows.

        Raises GatewayError, StoreError: nothing has begun then.
        """
        parse = partial(request_of, content, needs_model=entered.core.needs_model)
        wanted = await aside(parse, content=content)
        earlier, asked = await self.asked(entered, wanted, content, local=local)
        facts = ResponseFacts.of(asked)
        client = self._client(asked, facts) if wanted.stores else None
        run, request_key = await self.requests.run_of(request, entered, asked, content, client=client)
        if wanted.background:
            await run.on_record()
        row = StoredResponse(
            id=response_id_of(run.request_id),
            tenant=entered.caller.tenant,
            caller=entered.caller.name,
            state="queued" if wanted.background else "in_progress",
            created_s=run.created_s,
            run_id=run.exchange.id,
            previous_id=wanted.previous_response_id,
            conversation=wanted.conversation_id,
            background=wanted.background,
            request=orjson.dumps(facts.stored),
            input=orjson.dumps(listed(asked.items, response_id=response_id_of(run.request_id))),
        )
        goes_on = run.exchange.id != run.request_id  # another request began the run: only a row leads to it
        if wanted.background or (wanted.stores and goes_on):
            await self.kept.put(row)
        answer = ResponseAnswer(
            facts,
            response_id=row.id,
            created_s=row.created_s,
            now_s=self.kept.clock.time,
            background=wanted.background,
        )
        begun = Begun(
            run=run,
            request_key=request_key,
            answer=answer,
            row=row,
            items=[*earlier, *asked.items],
            streams=asked.streams,
            keep=partial(self.kept.keep, row, answer) if wanted.stores else None,
        )
        if wanted.background:
            await self._record(begun)
        return begun

    async def asked(
        self, entered: Entered, wanted: ResponseRequest, content: bytes, *, local: Local = NOTHING_LOCAL
    ) -> tuple[Sequence[Json], ResponseAsked]:
        """Return the items that a request goes on from, and the request as the lane gets it.

        Raises GatewayError, StoreError.
        """
        tenant = entered.caller.tenant
        earlier = await self._earlier(wanted, tenant=tenant, local=local)
        referenced = await self.kept.referenced(wanted.references, tenant=tenant)
        seal = await self.sealing.of(tenant)
        asked = partial(asked_of, wanted, earlier=earlier, referenced=referenced, unseal=seal.opened)
        return earlier, await aside(asked, content=content)

    async def asked_in(self, entered: Entered, body: Json, content: bytes) -> ResponseAsked:
        """Return the request that a JSON object is, as the lane gets it. Raises GatewayError, StoreError."""
        wanted = await aside(partial(request_from, body, needs_model=False), content=content)
        return (await self.asked(entered, wanted, content))[1]

    async def _earlier(self, wanted: ResponseRequest, *, tenant: str, local: Local) -> Sequence[Json]:
        """Return the items that a request goes on from. Raises GatewayError, StoreError."""
        before = wanted.previous_response_id
        if before is not None:
            known = local.get(before)
            chain = () if known is not None else await self.kept.chain(before, tenant=tenant)
            return known or [item for row in chain for item in items_of(row)]
        return () if wanted.conversation_id is None else await self._conversation(wanted.conversation_id, tenant=tenant)

    async def _conversation(self, conversation_id: str, *, tenant: str) -> Sequence[Json]:
        store = self.kept.store
        if await store.conversation(conversation_id, tenant=tenant) is None:
            raise no_conversation()
        return [orjson.loads(item) for item in await store.all_items(conversation_id, tenant=tenant)]

    def _client(self, asked: ResponseAsked, facts: ResponseFacts) -> Json:
        """Return what a run stores of its response, so that it can be shown after a crash."""
        wanted = asked.request
        return {
            "api": API,
            "request": facts.stored,
            "input": asked.items,
            "previous_id": wanted.previous_response_id,
            "conversation": wanted.conversation_id,
        }

    async def _record(self, begun: Begun) -> None:
        """Record the answer of a background response, unless that is done already. Raises StoreError."""
        row, kept = begun.row, self.kept
        if kept.logs.is_recording(row.id):
            return
        run = await kept.store.run(row.run_id, tenant=row.tenant)
        if run is None:
            raise not_found()
        kept.record(row, begun.run, fence=run.fence)


def no_conversation() -> GatewayError:
    """Return the error of a missing conversation. A conversation of another tenant gets the same answer."""
    return GatewayError(
        "conversation_not_found",
        "There is no conversation with this id: create one with POST /conversations.",
        param="conversation",
    )
