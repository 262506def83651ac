"""POST /context/explain: shows the model request of a chat completion, without side effects. It calls no model.

The chain of the request is folded once more, around a recorder instead of the model. So the answer shows the actual
results of the stages. The run ends where the first model call would begin.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import orjson
from aiohttp import web

from gateway.api.asking import identities_of
from gateway.api.content import aside, check_values, content_of
from gateway.api.site import REQUEST_ID, Route
from gateway.context.explain import Explainer
from gateway.context.lane import new_run_id
from gateway.contracts.store import Json
from gateway.dialects.chat.body import chat_request
from gateway.errors import GatewayError
from gateway.lanes.keys import Identify
from gateway.lanes.local import head_of

EXPLAIN_PATH = "/context/explain"
#: Calls that are judged in one request.
CALLS_LIMIT = 100


class ExplainPages:
    """The page of one worker. `current` returns the explainer of the configuration in use."""

    def __init__(self, *, current: Callable[[], Explainer], identify: Identify, admit: Callable[[], None]) -> None:
        self._current = current
        self._identify = identify
        self._admit = admit

    def routes(self) -> list[Route]:
        return [("POST", EXPLAIN_PATH, self._explain)]

    async def _explain(self, request: web.Request) -> web.StreamResponse:
        self._admit()
        explainer = self._current()
        lane, core, head = explainer.lane, explainer.core, head_of(request)
        identities = identities_of(head, core, self._identify)
        async with lane.in_use():
            caller = next(iter(identities.values())).caller
            content = await content_of(request, caller, limit_bytes=lane.body_bytes, limit_name="limits.context_body")
            await check_values(content, limit=lane.body_values)
            body = await aside(partial(chat_request, content, needs_model=False), content=content)
            calls = _calls(body.pop("calls", None))
            has_key = core.target_of(body).pool.endpoint.api_key is not None
            identity = identities.get(has_key) or self._identify(head, has_key, "context")
            run_id = request[REQUEST_ID] = new_run_id()
            exchange = await lane.exchange(head, body, identity=identity, run_id=run_id)
            answer = await explainer.explain(exchange)
            if calls is not None:
                answer["would_be_verdicts"] = await asyncio.gather(
                    *(explainer.verdict(call, exchange) for call in calls)
                )
        headers = {"Content-Type": "application/json", "x-request-id": run_id}
        return web.Response(body=orjson.dumps(answer), headers=headers)


def _calls(calls: object) -> Sequence[Json] | None:
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
