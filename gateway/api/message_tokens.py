"""POST /context/v1/messages/count_tokens: an estimate of the tokens that context mode would send for a request.

The chain of the request is folded as for an explanation (gateway/context/explain.py), so prompts, memories and the
gateway's tools count. No model is called. The gateway knows no model's tokens: four bytes are one, as in the usage that
it estimates. An image or a file counts like a large one, whatever its bytes are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson
from aiohttp import web

from gateway.aio.cooperative import run_aside
from gateway.api.context_request import ContextRequests
from gateway.api.ops_pages import REQUEST_ID, Route
from gateway.context.explain import Explainer
from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import ParsedRequest
from gateway.dialects.json_object import parse_json_object
from gateway.dialects.loader import load_dialect
from gateway.dialects.registry import HELPERS, build_paths
from gateway.runs.run_id import generate_run_id

_NAME: Final = "messages"
_BYTES: Final = 4
#: Tokens of an image or of a document, about as Anthropic counts a large image.
_FILE_TOKENS: Final = 1600
_FILES: Final = ("image_url", "file")
#: The field that a request to count has not, and one to answer needs.
_LIMIT: Final[Json] = {"max_tokens": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCountPage:
    """The page of one worker. `current` returns the explainer of the configuration in use."""

    current: Callable[[], Explainer]
    requests: ContextRequests

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [("POST", path, self._count) for helper in HELPERS[_NAME] for path in build_paths(helper)]

    async def _count(self, request: web.Request) -> web.StreamResponse:
        dialect = load_dialect(_NAME)
        async with self.requests.admit_request(request) as entered:
            explainer = self.current()
            content = await self.requests.read_body(request, entered)
            asked = await run_aside(partial(_parse, content, needs_model=entered.core.needs_model), content=content)
            has_key = entered.core.list_candidates(asked.body).has_key
            identity = entered.identities.get(has_key) or self.requests.identify(entered.head, has_key, "context")
            run_id = request[REQUEST_ID] = generate_run_id()
            build_exchange = await entered.lane.build_exchange(
                entered.head, asked.body, identity=identity, run_id=run_id, wishes=asked.wishes
            )
            told = await explainer.explain(build_exchange)
        sent = asked.body
        if told.get("messages") is not None:
            sent = {"messages": told["messages"], "tools": told["parameters"].get("tools")}
        tokens = await run_aside(partial(estimate_tokens, sent), content=content)
        further = dialect.build_writer(asked, run_id=run_id, created_s=0.0).headers
        headers = {"Content-Type": "application/json", "x-request-id": run_id, **further}
        return web.Response(body=orjson.dumps({"input_tokens": tokens}), headers=headers)


def _parse(content: bytes, *, needs_model: bool) -> ParsedRequest:
    """Return a request whose tokens are counted: one to answer, but for the limit of the answer."""
    body = parse_json_object(content)
    return load_dialect(_NAME).parse(orjson.dumps({**_LIMIT, **body}), needs_model=needs_model)


def estimate_tokens(body: Json) -> int:
    """Return the estimated tokens of a request's messages and tools, as models get them."""
    n_bytes, n_files = len(orjson.dumps(body.get("tools") or ())), 0
    for message in body.get("messages") or ():
        content = message.get("content")
        if isinstance(content, list):
            texts = [part for part in content if part.get("type") not in _FILES]
            n_files += len(content) - len(texts)
            message = {**message, "content": texts}
        n_bytes += len(orjson.dumps(message))
    return -(-n_bytes // _BYTES) + n_files * _FILE_TOKENS
