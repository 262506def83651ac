"""POST /responses/input_tokens: no count. Only the model's own server has its tokenizer, and no API of it is common.

A wrong number would be worse than none: clients cut their conversations by it.
"""

from dataclasses import dataclass
from typing import NoReturn

from aiohttp import web

from gateway.api.ops_pages import Route
from gateway.api.request import Authorise
from gateway.contracts.errors import GatewayError
from gateway.dialects.registry import build_paths


@dataclass(frozen=True, slots=True)
class CountPage:
    """The page that counts the tokens of an input, where it could be."""

    authorise: Authorise

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [("POST", path + "/input_tokens", self._serve_count) for path in build_paths("responses")]

    async def _serve_count(self, request: web.Request) -> NoReturn:
        self.authorise(request, "context")
        raise GatewayError(
            "unknown_route",
            "The context lane counts no tokens of an input: the prompt is made of it later, and only the model server "
            "counts it. Read 'usage' of a response, or send this to the upstream, if it has the path: "
            "'http://<this host>/v1/responses/input_tokens' without 'X-Context-*' headers.",
        )
