"""The pages of responses over HTTP: created, streamed, read again, cancelled, deleted."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson
from aiohttp import web

from gateway.aio.cooperative import run_aside
from gateway.api.ops_pages import Route
from gateway.api.request import Authorise, get_via, parse_query, parse_query_choice, parse_query_number
from gateway.api.responses.background_stream import ResponseStreams
from gateway.api.responses.creating import Creation, StartedResponse
from gateway.api.responses.idempotency import AnsweredBefore, find_repeated_response
from gateway.api.responses.lists import query_of_items, select_page
from gateway.api.responses.response_store import KeptResponses
from gateway.api.views import build_json_answer
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.responses import StoredResponse
from gateway.contracts.storage.store import Json, StoreError, UnwrittenError
from gateway.dialects.registry import build_paths
from gateway.dialects.responses.request import parse_request
from gateway.runs import run_resolution

log = logging.getLogger("gateway")

RESPONSES: Final = "responses"
_SCOPE: Final = "context"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePages:
    """The pages of responses."""

    creation: Creation
    kept: KeptResponses
    following: ResponseStreams
    authorise: Authorise

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        routes: list[Route] = []
        for path in build_paths(RESPONSES):
            one = path + "/{id}"
            routes += [
                ("POST", path, self._create),
                ("POST", f"{path}/", self._create),
                ("GET", one, self._serve_response),
                ("DELETE", one, self._delete),
                ("POST", one + "/cancel", self._cancel),
                ("GET", one + "/input_items", self._serve_input_items),
            ]
        return routes

    async def _create(self, request: web.Request) -> web.StreamResponse:
        requests = self.creation.requests
        async with requests.admit_request(request) as entered:
            content = await requests.read_body(request, entered)
            wanted = await run_aside(
                partial(parse_request, content, needs_model=entered.core.needs_model), content=content
            )
            try:
                begun = await self.creation.begin(request, entered, wanted, content)
            except AnsweredBefore as answered:
                return await self._answer_repeated(request, answered.row, streams=wanted.streams)
            if begun.row.background:
                return await self._answer_in_background(request, begun)
            run, streams = begun.run, wanted.streams
            try:
                with self.creation.hold_response(begun, streams=streams):
                    response = await entered.lane.send_answer(
                        request, run, begun.answer, streams=streams, keep=begun.keep
                    )
            except GatewayError:
                requests.resumption.forget_answered_question(run, begun.request_key)
                raise
            requests.resumption.forget_answered_question(run, begun.request_key)
            return response

    async def _answer_in_background(self, request: web.Request, begun: StartedResponse) -> web.StreamResponse:
        """Return a response that has begun, or its events as they come. The client may leave at any time."""
        run, row = begun.run, begun.row
        headers = {"X-Context-Run-Id": run.exchange.id, "x-request-id": run.request_id}
        if begun.again:
            row = await find_repeated_response(self.kept.find(row.id, tenant=row.tenant))
        if begun.streams:
            return await self.following.write_events(request, row, after=-1, headers=headers)
        answer = await self._build_answer(row) if begun.again else build_json_answer(begun.answer.build_resource())
        answer.headers.update(headers)
        return answer

    async def _answer_repeated(self, request: web.Request, row: StoredResponse, *, streams: bool) -> web.StreamResponse:
        """Return a response that began with an earlier request, once it has ended, or its events."""
        headers = {"X-Context-Run-Id": row.run_id}
        if streams and row.background:
            return await self.following.write_events(request, row, after=-1, headers=headers)
        if streams:
            return await self.following.retell(request, row, headers=headers)
        if not row.background:
            row = await self.following.wait_until_ended(row)
        answer = await self._build_answer(row)
        answer.headers.update(headers)
        return answer

    async def _serve_response(self, request: web.Request) -> web.StreamResponse:
        row = await self._get_response(request)
        query = query_of_items(request, "stream", "starting_after", "include_obfuscation")
        if parse_query_choice(query, "stream", ("true", "false")) != "true":
            return await self._build_answer(row)
        if not row.background:
            raise GatewayError(
                "invalid_field",
                "Only a response that was created with 'background' can be streamed again: leave 'stream' out.",
                param="stream",
            )
        after = parse_query_number(query, "starting_after", default=-1)
        return await self.following.write_events(request, row, after=after, headers={"X-Context-Run-Id": row.run_id})

    async def _delete(self, request: web.Request) -> web.Response:
        row = await self._get_response(request)
        parse_query(request)
        await self.kept.stop(row)  # before the look at the record: what it still writes is seen there
        if (row.output is None or await self.kept.waits(row)) and await self.kept.has_own_run(row):
            await self._end_run(request, row)
        with _convert_store_error_after_cancel(row):
            await self.kept.delete(row)
        return build_json_answer({"id": row.id, "object": "response", "deleted": True})

    async def _cancel(self, request: web.Request) -> web.Response:
        row = await self._get_response(request)
        parse_query(request)
        if row.output is not None and await self.kept.waits(row):  # it stays as it is; its question is withdrawn
            await self._end_run(request, row)
            return await self._build_answer(row)
        if not row.background:
            raise GatewayError(
                "invalid_field",
                "Only a response that was created with 'background' can be cancelled: close the connection of another.",
                param="response_id",
            )
        if row.output is None:
            await self._end_run(request, row)
            with _convert_store_error_after_cancel(row):
                row = await self.kept.find(row.id, tenant=row.tenant)
        elif row.state != "cancelled":
            raise GatewayError(
                "run_ended", f"The response is {row.state} already: there is nothing to cancel.", param="response_id"
            )
        return await self._build_answer(row)

    async def _end_run(self, request: web.Request, row: StoredResponse) -> None:
        """Cancel the run of a response, and with it its question, unless it has just ended."""
        caller = self.authorise(request, _SCOPE)
        try:
            await run_resolution.cancel(
                self.kept.store,
                row.run_id,
                caller=caller,
                via=get_via(request),
                clock=self.kept.clock,
                tracer=self.kept.tracer,
            )
        except GatewayError as error:
            if error.code not in ("run_ended", "run_not_found"):
                raise
        else:
            self.kept.lose(row.run_id)
            if row.output is None:
                with _convert_store_error_after_cancel(row):
                    await self.kept.store_cancelled(row)

    async def _serve_input_items(self, request: web.Request) -> web.Response:
        row = await self._get_response(request)
        items: list[Json] = await run_aside(partial(orjson.loads, row.input), content=row.input)
        query = query_of_items(request, "after", "limit", "order")
        if parse_query_choice(query, "order", ("asc", "desc")) != "asc":
            items.reverse()
        return select_page(items, query)

    async def _build_answer(self, row: StoredResponse) -> web.Response:
        body = await self.kept.render_response(row)
        return web.Response(body=body, content_type="application/json", charset="utf-8")

    async def _get_response(self, request: web.Request) -> StoredResponse:
        """Return the response of a path. Raises GatewayError (response_not_found)."""
        caller = self.authorise(request, _SCOPE)
        return await self.kept.find(request.match_info["id"], tenant=caller.tenant)


@contextmanager
def _convert_store_error_after_cancel(row: StoredResponse) -> Iterator[None]:
    """Convert a failure of the store behind the end of a run: that is stored. Raises GatewayError (store_full)."""
    try:
        yield
    except (StoreError, UnwrittenError) as error:
        log.error("the store failed behind the end of run %s: %s", row.run_id, error)
        text = f"The run {row.run_id} has ended, but not all of this request is stored: send it again."
        raise GatewayError("store_full", text) from None
