"""Prompts and resources of services, passed on by name: the gate judges calls, and these are not calls.

A prompt of a service is `service__prompt` to a client, and a resource `twolane://SERVICE/URI`. On the path of the
service both have the server's own names. A server that does not answer is left out of a list.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from gateway.aio.cooperative import Work, run_cooperatively
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ServiceSource, encode_model_name
from gateway.mcp.calls import AnsweredError, LostError
from gateway.mcp.client_view import McpSource
from gateway.mcp.prompts_and_resources import LISTS, read_prompt_result, read_resource_result
from gateway.mcp.server_text import format_one_line
from gateway.mcp_server.errors import build_not_found
from gateway.mcp_server.listing import AccessFilter
from gateway.tools.catalog import ConfiguredSource

log = logging.getLogger("gateway")

#: A list waits no longer for one server.
LIST_S: Final = 5.0
#: Of one list of one server.
PAGES: Final = 20
_ERROR_CHARS: Final = 2000
_SCHEME: Final = "twolane://"
_ADDRESS: Final = re.compile(rf"{_SCHEME}([^/]+)/(.+)", re.DOTALL)


class ServiceOffers:
    """The offers of running services beside tools. `services` returns them as they are now."""

    def __init__(self, services: Callable[[], Sequence[ConfiguredSource[ServiceSource]]]) -> None:
        self._services = services

    async def list_prompts(self, narrowing: AccessFilter) -> list[Json]:
        """Return the prompts that a request may use."""
        found = await self._list_entries("prompts", "prompts/list", "prompts", narrowing)
        return [
            {**entry, "name": _build_name(service, entry["name"], narrowing)}
            for service, entries in found
            for entry in entries
        ]

    async def list_resources(self, narrowing: AccessFilter) -> list[Json]:
        """Return the resources that a request may read."""
        found = await self._list_entries("resources", "resources/list", "resources", narrowing)
        return [_rewrite_address(entry, "uri", service, narrowing) for service, entries in found for entry in entries]

    async def list_templates(self, narrowing: AccessFilter) -> list[Json]:
        """Return the templates of resources that a request may read."""
        found = await self._list_entries("resources", "resources/templates/list", "resourceTemplates", narrowing)
        return [
            _rewrite_address(entry, "uriTemplate", service, narrowing)
            for service, entries in found
            for entry in entries
        ]

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None, narrowing: AccessFilter) -> Json:
        """Return a prompt with these arguments. Raises MCPError."""
        params: Json = {} if arguments is None else {"arguments": dict(arguments)}
        for service, source in self._find_sources("prompts", narrowing):
            own = _strip_service_prefix(service, name, narrowing)
            if own is not None:
                return await _ask_service(source, service, "prompts/get", {**params, "name": own}, read_prompt_result)
        raise build_not_found("prompt")

    async def read(self, uri: str, narrowing: AccessFilter) -> Json:
        """Return what a resource contains. Raises MCPError."""
        named, own = narrowing.service, uri
        if (address := _ADDRESS.fullmatch(uri)) is not None:
            named, own = unquote(address[1]), address[2]
        source = next((one for name, one in self._find_sources("resources", narrowing) if name == named), None)
        if source is None or named is None:
            raise build_not_found("resource")
        result = await _ask_service(source, named, "resources/read", {"uri": own}, read_resource_result)
        return {"contents": [_rewrite_address(content, "uri", named, narrowing) for content in result["contents"]]}

    def _find_sources(self, kind: str, narrowing: AccessFilter) -> Iterator[tuple[str, McpSource]]:
        """Yield the running services that offer this kind and that the request may use as a whole."""
        seen: set[str] = set()
        for configured in self._services():
            source, name = configured.source, configured.source.get_service().name
            if name in seen:
                continue
            seen.add(name)
            if isinstance(source, McpSource) and source.offers(kind) and narrowing.allows_service(name):
                yield name, source

    async def _list_entries(
        self, kind: str, method: str, key: str, narrowing: AccessFilter
    ) -> Sequence[tuple[str, Sequence[Json]]]:
        offering = list(self._find_sources(kind, narrowing))
        found = await asyncio.gather(*(_read_pages(source, name, method, key) for name, source in offering))
        return [(name, entries) for (name, _), entries in zip(offering, found, strict=True)]


def rewrite_addresses(result: Json, service: str | None, narrowing: AccessFilter) -> Json:
    """Return the result of a tool with the resources that it names or contains as this client reads them."""
    if service is None or narrowing.service is not None:
        return result
    content = [_rewrite_block(block, service, narrowing) for block in result["content"]]
    return {**result, "content": content}


def _rewrite_block(block: Json, service: str, narrowing: AccessFilter) -> Json:
    """Return a block of content with the resource addresses that this client can read."""
    if block.get("type") == "resource_link":
        return _rewrite_address(block, "uri", service, narrowing)
    if block.get("type") == "resource" and isinstance(block.get("resource"), dict):
        return {**block, "resource": _rewrite_address(block["resource"], "uri", service, narrowing)}
    return block


async def _read_pages(source: McpSource, service: str, method: str, key: str) -> Sequence[Json]:
    """Return all entries of a list of one server; none if it does not answer in time."""
    entries = LISTS[method]()
    params: Json = {}
    try:
        async with asyncio.timeout(LIST_S):
            for _ in range(PAGES):
                page = await source.ask(method, params)
                entries.add(page.get(key))
                if not isinstance(page.get("nextCursor"), str) or entries.is_full:
                    break
                params = {"cursor": page["nextCursor"]}
    except (AnsweredError, LostError, TimeoutError) as error:
        log.warning("service %r: its %s are left out: %s", service, key, str(error) or type(error).__name__)
        return ()
    if entries.left_out:
        log.warning("service %r: %d of its %s do not fit and are left out", service, entries.left_out, key)
    return list(entries.found.values())


async def _ask_service(
    source: McpSource, service: str, method: str, params: Json, read: Callable[[Json], Work[Json]]
) -> Json:
    """Return the answer of a server, as `read` returns it. Raises MCPError."""
    try:
        return await run_cooperatively(read(await source.ask(method, params)))
    except ValueError as error:
        raise MCPError(INTERNAL_ERROR, f"the answer of the service {service!r} is left out: {error}.") from None
    except AnsweredError as error:
        words = format_one_line(str(error), _ERROR_CHARS)
        raise MCPError(INTERNAL_ERROR, f"the service {service!r} answered with an error: {words}") from None
    except (LostError, TimeoutError):
        raise MCPError(INTERNAL_ERROR, f"the service {service!r} did not answer: try again later.") from None


def _build_name(service: str, own: str, narrowing: AccessFilter) -> str:
    return own if narrowing.service is not None else f"{encode_model_name(service)}__{own}"


def _strip_service_prefix(service: str, name: str, narrowing: AccessFilter) -> str | None:
    """Return the server's own name of a prompt; None: it belongs to another service."""
    prefix = f"{encode_model_name(service)}__"
    if narrowing.service is not None:
        return name
    return name.removeprefix(prefix) if name.startswith(prefix) else None


def _rewrite_address(entry: Json, key: str, service: str, narrowing: AccessFilter) -> Json:
    """Return an entry whose address leads to its service again."""
    if narrowing.service is not None or not isinstance(entry.get(key), str):
        return entry
    return {**entry, key: f"{_SCHEME}{quote(service, safe='')}/{entry[key]}"}
