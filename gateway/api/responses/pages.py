"""The pages of responses over HTTP: created, streamed, read again, cancelled, deleted."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson
from aiohttp import web

from gateway.api.request import Authorise, number_of, query_of, via_of, word_of
from gateway.api.responses.creating import Begun, Creation
from gateway.api.responses.following import Following
from gateway.api.responses.kept import KeptResponses
from gateway.api.responses.lists import page_of_items, query_of_items
from gateway.api.responses.repeats import AnsweredBefore, of_first
from gateway.api.site import Route
from gateway.api.views import json_answer
from gateway.contracts.responses import StoredResponse
from gateway.contracts.store import Json, StoreError, UnwrittenError
from gateway.dialects.endpoints import paths_of
from gateway.dialects.responses.request import request_of
from gateway.errors import GatewayError
from gateway.runs import settle
from gateway.turns import aside

log = logging.getLogger("gateway")

RESPONSES: Final = "responses"
_SCOPE: Final = "context"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePages:
    """The pages of responses."""

    creation: Creation
    kept: KeptResponses
    following: Following
    authorise: Authorise

    def routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        routes: list[Route] = []
        for path in paths_of(RESPONSES):
            one = path + "/{id}"
            routes += [
                ("POST", path, self._create),
                ("POST", f"{path}/", self._create),
                ("GET", one, self._get),
                ("DELETE", one, self._delete),
                ("POST", one + "/cancel", self._cancel),
                ("GET", one + "/input_items", self._input_items),
            ]
        return routes

    async def _create(self, request: web.Request) -> web.StreamResponse:
        requests = self.creation.requests
        async with requests.entered(request) as entered:
            content = await requests.content(request, entered)
            wanted = await aside(partial(request_of, content, needs_model=entered.core.needs_model), content=content)
            try:
                begun = await self.creation.begin(request, entered, wanted, content)
            except AnsweredBefore as answered:
                return await self._again(request, answered.row, streams=wanted.streams)
            if begun.row.background:
                return await self._in_background(request, begun)
            run, streams = begun.run, wanted.streams
            try:
                with self.creation.answering(begun, streams=streams):
                    response = await entered.lane.answer(request, run, begun.answer, streams=streams, keep=begun.keep)
            except GatewayError:
                requests.resumption.delivered(run, begun.request_key)
                raise
            requests.resumption.delivered(run, begun.request_key)
            return response

    async def _in_background(self, request: web.Request, begun: Begun) -> web.StreamResponse:
        """Return a response that has begun, or its events as they come. The client may leave at any time."""
        run, row = begun.run, begun.row
        headers = {"X-Context-Run-Id": run.exchange.id, "x-request-id": run.request_id}
        if begun.again:
            row = await of_first(self.kept.find(row.id, tenant=row.tenant))
        if begun.streams:
            return await self.following.stream(request, row, after=-1, headers=headers)
        answer = await self._shown(row) if begun.again else json_answer(begun.answer.resource())
        answer.headers.update(headers)
        return answer

    async def _again(self, request: web.Request, row: StoredResponse, *, streams: bool) -> web.StreamResponse:
        """Return a response that began with an earlier request, once it has ended, or its events."""
        headers = {"X-Context-Run-Id": row.run_id}
        if streams and row.background:
            return await self.following.stream(request, row, after=-1, headers=headers)
        if streams:
            return await self.following.retell(request, row, headers=headers)
        if not row.background:
            row = await self.following.ended(row)
        answer = await self._shown(row)
        answer.headers.update(headers)
        return answer

    async def _get(self, request: web.Request) -> web.StreamResponse:
        row = await self._found(request)
        query = query_of_items(request, "stream", "starting_after", "include_obfuscation")
        if word_of(query, "stream", ("true", "false")) != "true":
            return await self._shown(row)
        if not row.background:
            raise GatewayError(
                "invalid_field",
                "Only a response that was created with 'background' can be streamed again: leave 'stream' out.",
                param="stream",
            )
        after = number_of(query, "starting_after", default=-1)
        return await self.following.stream(request, row, after=after, headers={"X-Context-Run-Id": row.run_id})

    async def _delete(self, request: web.Request) -> web.Response:
        row = await self._found(request)
        query_of(request)
        await self.kept.stop(row)  # before the look at the record: what it still writes is seen there
        if (row.output is None or await self.kept.waits(row)) and await self.kept.has_own_run(row):
            await self._end(request, row)
        with _behind_cancel(row):
            await self.kept.delete(row)
        return json_answer({"id": row.id, "object": "response", "deleted": True})

    async def _cancel(self, request: web.Request) -> web.Response:
        row = await self._found(request)
        query_of(request)
        if row.output is not None and await self.kept.waits(row):  # it stays as it is; its question is withdrawn
            await self._end(request, row)
            return await self._shown(row)
        if not row.background:
            raise GatewayError(
                "invalid_field",
                "Only a response that was created with 'background' can be cancelled: close the connection of another.",
                param="response_id",
            )
        if row.output is None:
            await self._end(request, row)
            with _behind_cancel(row):
                row = await self.kept.find(row.id, tenant=row.tenant)
        elif row.state != "cancelled":
            raise GatewayError(
                "run_ended", f"The response is {row.state} already: there is nothing to cancel.", param="response_id"
            )
        return await self._shown(row)

    async def _end(self, request: web.Request, row: StoredResponse) -> None:
        """Cancel the run of a response, and with it its question, unless it has just ended."""
        caller = self.authorise(request, _SCOPE)
        try:
            await settle.cancel(
                self.kept.store,
                row.run_id,
                caller=caller,
                via=via_of(request),
                clock=self.kept.clock,
                tracer=self.kept.tracer,
            )
        except GatewayError as error:
            if error.code not in ("run_ended", "run_not_found"):
                raise
        else:
            self.kept.lose(row.run_id)
            if row.output is None:
                with _behind_cancel(row):
                    await self.kept.cancelled(row)

    async def _input_items(self, request: web.Request) -> web.Response:
        row = await self._found(request)
        items: list[Json] = await aside(partial(orjson.loads, row.input), content=row.input)
        query = query_of_items(request, "after", "limit", "order")
        if word_of(query, "order", ("asc", "desc")) != "asc":
            items.reverse()
        return page_of_items(items, query)

    async def _shown(self, row: StoredResponse) -> web.Response:
        body = await self.kept.shown(row)
        return web.Response(body=body, content_type="application/json", charset="utf-8")

    async def _found(self, request: web.Request) -> StoredResponse:
        """Return the response of a path. Raises GatewayError (response_not_found)."""
        caller = self.authorise(request, _SCOPE)
        return await self.kept.find(request.match_info["id"], tenant=caller.tenant)


@contextmanager
def _behind_cancel(row: StoredResponse) -> Iterator[None]:
    """Convert a failure of the store behind the end of a run: that is stored. Raises GatewayError (store_full)."""
    try:
        yield
    except (StoreError, UnwrittenError) as error:
        log.error("the store failed behind the end of run %s: %s", row.run_id, error)
        text = f"The run {row.run_id} has ended, but not all of this request is stored: send it again."
        raise GatewayError("store_full", text) from None
