"""The pages of responses over HTTP: created, streamed, read again, cancelled, deleted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson
from aiohttp import web

from gateway.api.request import Authorise, limit_of, number_of, query_of, via_of, word_of
from gateway.api.responses.creating import Begun, Creation
from gateway.api.responses.following import Following
from gateway.api.responses.kept import KeptResponses
from gateway.api.site import Route
from gateway.api.views import json_answer
from gateway.contracts.responses import StoredResponse
from gateway.contracts.store import Json
from gateway.dialects.endpoints import paths_of
from gateway.errors import GatewayError
from gateway.runs import settle

RESPONSES: Final = "responses"
_SCOPE: Final = "context"
#: Most items of a page, as in OpenAI's API.
_MOST: Final = 100


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
            begun = await self.creation.begin(request, entered, content)
            streams = begun.streams
            if begun.row.background:
                return await self._in_background(request, begun, streams=streams)
            try:
                response = await entered.lane.answer(request, begun.run, begun.answer, streams=streams, keep=begun.keep)
            finally:
                requests.resumption.delivered(begun.run, begun.request_key)
            return response

    async def _in_background(self, request: web.Request, begun: Begun, *, streams: bool) -> web.StreamResponse:
        """Return a response that has begun, or its events as they come. The client may leave at any time."""
        run = begun.run
        headers = {"X-Context-Run-Id": run.exchange.id, "x-request-id": run.request_id}
        if streams:
            return await self.following.stream(request, begun.row, after=-1, headers=headers)
        return web.Response(
            body=orjson.dumps(begun.answer.resource()), headers={**headers, "Content-Type": "application/json"}
        )

    async def _get(self, request: web.Request) -> web.StreamResponse:
        row = await self._found(request)
        query = query_of(request, "stream", "starting_after", "include", "include[]", "include_obfuscation")
        if word_of(query, "stream", ("true", "false")) != "true":
            return json_answer(await self.kept.resource(row))
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
        if row.output is None:
            await self._end(request, row)
        await self.kept.delete(row)
        return json_answer({"id": row.id, "object": "response", "deleted": True})

    async def _cancel(self, request: web.Request) -> web.Response:
        row = await self._found(request)
        if not row.background:
            raise GatewayError(
                "invalid_field",
                "Only a response that was created with 'background' can be cancelled: close the connection of another.",
                param="response_id",
            )
        if row.output is None:
            await self._end(request, row)
            row = await self.kept.find(row.id, tenant=row.tenant)
        elif row.state != "cancelled":
            raise GatewayError(
                "run_ended", f"The response is {row.state} already: there is nothing to cancel.", param="response_id"
            )
        return json_answer(await self.kept.resource(row))

    async def _end(self, request: web.Request, row: StoredResponse) -> None:
        """Cancel the run of a response, unless it has just ended."""
        caller = self.authorise(request, _SCOPE)
        try:
            await settle.cancel(self.kept.store, row.run_id, caller=caller, via=via_of(request), clock=self.kept.clock)
        except GatewayError as error:
            if error.code not in ("run_ended", "run_not_found"):
                raise
        else:
            await self.kept.cancelled(row)

    async def _input_items(self, request: web.Request) -> web.Response:
        row = await self._found(request)
        items: list[Json] = orjson.loads(row.input)
        query = query_of(request, "after", "limit", "order", "include", "include[]")
        if word_of(query, "order", ("asc", "desc")) != "asc":
            items.reverse()
        return items_answer(items, after=query.get("after"), limit=limit_of(query, default=20))

    async def _found(self, request: web.Request) -> StoredResponse:
        """Return the response of a path. Raises GatewayError (response_not_found)."""
        caller = self.authorise(request, _SCOPE)
        return await self.kept.find(request.match_info["id"], tenant=caller.tenant)


def items_answer(items: Sequence[Json], *, after: str | None, limit: int) -> web.Response:
    """Return one page of items, as OpenAI's API has lists. Raises GatewayError (invalid_field)."""
    begin = 0
    if after is not None:
        begin = 1 + next((at for at, item in enumerate(items) if item["id"] == after), -1)
        if not begin:
            raise GatewayError(
                "invalid_field", "There is no item with this id in the list: leave 'after' out.", param="after"
            )
    page = items[begin : begin + min(limit, _MOST)]
    return json_answer(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": begin + len(page) < len(items),
        }
    )
