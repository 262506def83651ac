"""The tools of one visitor: the list of tools, the schema of one, and the way of a call to what answers it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson
from mcp_types import CallToolRequestParams

from gateway.aio.cooperative import run_cooperatively
from gateway.config.schema.mcp_serve import Serve
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.mcp_server.client_request import CURRENT, ClientRequest, get_client_request
from gateway.mcp_server.errors import build_not_found
from gateway.mcp_server.finding import search
from gateway.mcp_server.finding.word_index import WordIndex, index_words
from gateway.mcp_server.listing import AccessFilter, ToolListing, ToolOffer
from gateway.mcp_server.results import build_text_result
from gateway.mcp_server.services import rewrite_addresses
from gateway.mcp_server.tool_calls import CallHandler
from gateway.tools.client_rights import WORKFLOW_SCOPE

#: Refusals of a call that the model of the client reads, and acts on.
_FOR_MODELS: Final = frozenset(("invalid_parameters", "service_not_running"))


@dataclass(slots=True, kw_only=True)
class ClientTools:
    """The tools of one worker. `serve` returns the settings in use."""

    listing: ToolListing
    calling: CallHandler
    serve: Callable[[], Serve]
    _index: WordIndex | None = None

    def get_access_filter(self, visit: ClientRequest) -> AccessFilter:
        """Return what a request may use. Workflows need the scope that their pages need."""
        caller = visit.identity.caller
        lists = (self.serve().tools, caller.bounds.tools)
        return AccessFilter(lists, visit.service, workflows=WORKFLOW_SCOPE in caller.scopes)

    def list_definitions(self, ctx: Any) -> list[Json]:
        """Return the definitions that a client sees: all of its tools, or two that stand for a long list."""
        narrowing = self.get_access_filter(get_client_request(ctx))
        offers = self.listing.list_offers(narrowing)
        if self._is_long(len(offers)):
            return list(search.DEFINITIONS)
        is_plain = narrowing.service is not None
        return [offer.get_definition(version=ctx.protocol_version, plain=is_plain) for offer in offers]

    def find_schema(self, name: str) -> Json | None:
        """Return the schema of a tool for the visit of this task, to check headers by; None: there is none."""
        visit = CURRENT.get()
        offer = None if visit is None else self.listing.find(name, self.get_access_filter(visit))
        if offer is None:
            return None
        schema: Json = next(iter(offer.definitions.values()))["inputSchema"]
        return schema

    async def call(self, ctx: Any, params: CallToolRequestParams) -> Any:
        """Return the result of a call, maybe of an earlier one whose service is gone. Raises MCPError, GatewayError."""
        narrowing = self.get_access_filter(get_client_request(ctx))
        name, arguments = params.name, params.arguments or {}
        if name in (search.FIND, search.CALL) and self._is_long(len(offers := self.listing.list_offers(narrowing))):
            try:
                if name == search.FIND:
                    is_plain = narrowing.service is not None
                    return await self._search_tools(offers, arguments, ctx.protocol_version, plain=is_plain)
                name, arguments = search.parse_wanted_call(arguments)
            except ValueError as error:
                return build_text_result(f"The arguments do not fit: {error}.", ok=False)
        offer = self.listing.find(name, narrowing) or self.listing.find_absent(name, narrowing)
        if offer is None:
            raise build_not_found("tool")
        try:
            result = await self.calling.call(ctx, params, offer, arguments)
        except GatewayError as error:
            if error.code not in _FOR_MODELS:
                raise
            return build_text_result(error.message, ok=False)
        return rewrite_addresses(result, offer.service, narrowing) if isinstance(result, dict) else result

    def _is_long(self, count: int) -> bool:
        most = self.serve().search_over
        return most is not None and count > most

    async def _search_tools(self, offers: list[ToolOffer], arguments: Json, version: str, *, plain: bool) -> Json:
        """Return what a query finds. The words of all tools are read once after each change."""
        every, index = self.listing.list_every(), self._index
        if index is None or index.offers is not every:
            self._index = index = await run_cooperatively(index_words(every))
        found = search.search_tools(offers, index, arguments, version=version, plain=plain)
        return build_text_result(orjson.dumps(found).decode())
