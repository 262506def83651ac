"""POST /context/explain: shows the model request of a chat or a response, without side effects. It calls no model.

The chain of the request is folded once more, around a recorder instead of the model. So the answer shows the actual
results of the stages. The run ends where the first model call would begin.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson
from aiohttp import web

from gateway.aio.cooperative import run_aside
from gateway.api.context_request import AdmittedRequest, ContextRequests
from gateway.api.ops_pages import REQUEST_ID, Route
from gateway.api.responses.creating import Creation
from gateway.context.explain import Explainer
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import ParsedRequest
from gateway.dialects.json_object import parse_json_object
from gateway.dialects.loader import load_dialect
from gateway.runs.run_id import generate_run_id

EXPLAIN_PATH = "/context/explain"
#: Calls that are judged in one request.
CALLS_LIMIT = 100
#: The dialect of a request outside the Responses API.
_CHAT: Final = load_dialect("chat")
#: Fields of which a request for a response has one, and a chat none.
_OF_RESPONSES: Final = ("input", "previous_response_id", "conversation")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainPages:
    """The page of one worker. `current` returns the explainer of the configuration in use."""

    current: Callable[[], Explainer]
    requests: ContextRequests
    creation: Creation

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [("POST", EXPLAIN_PATH, self._explain)]

    async def _explain(self, request: web.Request) -> web.StreamResponse:
        async with self.requests.admit_request(request) as entered:
            explainer = self.current()
            content = await self.requests.read_body(request, entered)
            body = await run_aside(partial(parse_json_object, content), content=content)
            calls = _read_calls(body.pop("calls", None))
            asked = await self._parse_request(entered, body, content)
            has_key = entered.core.list_candidates(asked.body).has_key
            identity = entered.identities.get(has_key) or self.requests.identify(entered.head, has_key, "context")
            run_id = request[REQUEST_ID] = generate_run_id()
            exchange = await entered.lane.build_exchange(
                entered.head, asked.body, identity=identity, run_id=run_id, wishes=asked.wishes
            )
            answer = await explainer.explain(exchange)
            if calls is not None:
                answer["would_be_verdicts"] = await asyncio.gather(
                    *(explainer.judge_call(call, exchange) for call in calls)
                )
        headers = {"Content-Type": "application/json", "x-request-id": run_id}
        return web.Response(body=orjson.dumps(answer), headers=headers)

    async def _parse_request(self, entered: AdmittedRequest, body: Json, content: bytes) -> ParsedRequest:
        """Return the request, which is one of either API. Raises GatewayError, StoreError."""
        if "messages" not in body and any(name in body for name in _OF_RESPONSES):
            return await self.creation.parse_request(entered, body, content)
        return await run_aside(partial(_CHAT.parse, orjson.dumps(body), needs_model=False), content=content)


def _read_calls(calls: object) -> Sequence[Json] | None:
    """Return the calls to judge. Raises GatewayError (invalid_field)."""
    if calls is None:
        return None
    if not isinstance(calls, list) or len(calls) > CALLS_LIMIT or not all(map(_is_call, calls)):
        raise GatewayError(
            "invalid_field",
            f'"calls" must be a list of at most {CALLS_LIMIT} objects {{"tool": "NAME", "parameters": {{...}}}}.',
            param="calls",
        )
    return calls


def _is_call(call: object) -> bool:
    return isinstance(call, dict) and isinstance(call.get("tool"), str) and isinstance(call.get("parameters"), dict)
