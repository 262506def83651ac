"""The pages of services (MCP servers), for scope `admin`: register, change, stop and start them, accept tools.

Answers describe this worker's present state, with the worst state of all workers. No page shows a secret again.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Annotated, Final, Literal, TypedDict, cast

import orjson
from aiohttp import web
from msgspec import Meta, field

from gateway.api.ops_pages import Route, build_readable_routes
from gateway.api.request import (
    Authorise,
    RequestBody,
    paginate,
    parse_json,
    parse_query,
    read_body_text,
    require_object,
    validate_body,
)
from gateway.api.views import build_json_answer, build_page_answer, list_answer
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json, ServiceState, StoredService, StoreError, UntoldError
from gateway.contracts.tools import encode_model_name
from gateway.contracts.views import UnixTime, View, fill_view
from gateway.mcp.registration import (
    SettingsError,
    check_service_name,
    mask_settings,
    parse_settings,
    restore_stored_secrets,
)
from gateway.mcp.server import MOST_PINS, Source
from gateway.mcp.servers import McpServers, ServerStatus
from gateway.text.reserved_names import ServiceNames

log = logging.getLogger("gateway")

SERVICES: Final = "/mcp/services"
SCOPE: Final = "admin"
BODY_LIMIT_BYTES = 256 << 10
CREATED = 201


class WorkerServiceView(View, frozen=True):
    """A service as one worker sees it."""

    worker: str
    state: ServiceState
    error: str | None
    updated_s: UnixTime = field(name="updated_at")


class ServiceView(View, frozen=True, kw_only=True):
    """A service (an MCP server), in the worst state of all workers. `settings` have no secrets.

    `runs_at` is the address of the worker that runs a server with `run: one`, as far as it is known.
    """

    name: str
    object: Literal["mcp.service"] = "mcp.service"
    source: Source
    state: ServiceState
    error: str | None
    degraded: bool
    since_s: UnixTime = field(name="since")
    transport: Literal["stdio", "http"]
    protocol: str | None
    restarts: int
    runs_at: str | None
    skipped_lines: int
    stopped: bool
    description: str
    trigger_keywords: Sequence[str]
    tools: int
    changed: list[str]
    settings: Json | None
    workers: list[WorkerServiceView]


class WholeServiceView(ServiceView, frozen=True, kw_only=True):
    """A service with the last lines of its standard error."""

    stderr: Sequence[str]


class ServiceDeletedView(View, frozen=True, kw_only=True):
    """The name of a deleted service."""

    name: str
    object: Literal["mcp.service.deleted"] = "mcp.service.deleted"
    deleted: Literal[True] = True


class ToolDefinitionView(TypedDict):
    """The definition of a tool, in the form in which it is stored."""

    description: str
    parameters: Json
    title: str | None
    output_schema: Json | None
    annotations: Json | None


_Accepted = Meta(description="Of a changed tool: the accepted definition; null if it is not known.")


class ServiceToolView(View, frozen=True, kw_only=True):
    """A tool of a service. `changed`: its definition is not the one that was accepted."""

    name: str
    object: Literal["mcp.tool"] = "mcp.tool"
    model_name: str
    description: str
    parameters: Json
    title: str | None
    output_schema: Json | None
    annotations: Json | None
    sha256: str
    accepted_sha256: str | None
    accepted: Annotated[ToolDefinitionView | None, _Accepted]
    changed: bool


class Acceptance(RequestBody):
    """The definitions to accept: by tool, the hash that the person saw; null accepts all as they are now."""

    tools: Mapping[str, str] | None = None


class ServicePages:
    """The pages of one worker."""

    def __init__(self, *, mcp_servers: Callable[[], McpServers], authorise: Authorise) -> None:
        self._servers = mcp_servers
        self._authorise = authorise

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        one = SERVICES + "/{name}"
        return [
            *build_readable_routes(SERVICES, self._list),
            *build_readable_routes(one, self._serve_service),
            *build_readable_routes(one + "/tools", self._serve_tools),
            ("POST", SERVICES, self._register),
            ("PUT", one, self._serve_put),
            ("DELETE", one, self._delete),
            ("POST", one + "/start", self._start),
            ("POST", one + "/stop", self._stop),
            ("POST", one + "/restart", self._restart),
            ("POST", one + "/accept", self._accept),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        self._authorise(request, SCOPE)
        query = parse_query(request, "after", "limit")
        # In an order that all workers have: each may answer one page.
        found = sorted(await self._servers().list_services(), key=lambda seen: seen.name)
        page, following = paginate(found, query, key=attrgetter("name"))
        return build_page_answer([build_service_view(seen) for seen in page], following=following)

    async def _serve_service(self, request: web.Request) -> web.Response:
        self._require_admin(request)
        seen = await self._get_service(request.match_info["name"])
        return build_json_answer(fill_view(WholeServiceView, build_service_view(seen), stderr=seen.condition.stderr))

    async def _serve_tools(self, request: web.Request) -> web.Response:
        self._require_admin(request)
        seen = await self._get_service(request.match_info["name"])
        pins = seen.wanted.record.pins
        wanted = [pins[tool] for tool in sorted(seen.service.get_service().changed) if tool in pins]
        return list_answer(build_tool_views(seen, recorded=await self._servers().load_definitions(wanted)))

    async def _register(self, request: web.Request) -> web.Response:
        caller = self._require_admin(request)
        settings = await _read_json_object(request, caller)
        name = _check_name(settings.pop("name", None))
        config = _encode_config(settings)
        if await self._is_configured_service(name):
            raise _build_exists_error()
        await self._check_name_conflict(name)

        def add(kept: StoredService) -> StoredService:
            if kept.config is not None:
                raise _build_exists_error()
            return replace(kept, config=config, stopped=False, pins={})

        return await self._change_service(name, add, caller, "registered", status=CREATED)

    async def _serve_put(self, request: web.Request) -> web.Response:
        caller = self._require_admin(request)
        settings = await _read_json_object(request, caller)
        name = _check_name(request.match_info["name"])
        if settings.pop("name", name) != name:
            raise GatewayError(
                "invalid_field", "The 'name' in the body is not the one in the path: leave it out.", param="name"
            )
        if await self._is_configured_service(name):
            raise _is_configured()
        await self._check_name_conflict(name)

        def put(kept: StoredService) -> StoredService:
            before = None if kept.config is None else orjson.loads(kept.config)
            return replace(kept, config=_encode_config(settings, kept=before))

        return await self._change_service(name, put, caller, "changed")

    async def _delete(self, request: web.Request) -> web.Response:
        caller, name = self._require_admin(request), request.match_info["name"]
        if await self._is_configured_service(name):
            raise _is_configured()
        if not await self._servers().delete(name):
            raise _build_not_found_error()
        log.info("the service %r was deleted by %r", name, caller.name)
        return build_json_answer(ServiceDeletedView(name=name))

    async def _start(self, request: web.Request) -> web.Response:
        self._require_admin(request)
        if not (await self._get_service(request.match_info["name"])).wanted.is_enabled:
            raise GatewayError(
                "service_not_running", "The settings of this service turn it off: set 'enabled' to true first."
            )
        return await self._operate_service(request, "started", lambda kept: replace(kept, stopped=False))

    async def _stop(self, request: web.Request) -> web.Response:
        return await self._operate_service(request, "stopped", lambda kept: replace(kept, stopped=True))

    async def _restart(self, request: web.Request) -> web.Response:
        return await self._operate_service(
            request, "restarted", lambda kept: replace(kept, stopped=False, restarts=kept.restarts + 1)
        )

    async def _accept(self, request: web.Request) -> web.Response:
        caller = self._require_admin(request)
        content = await _read_json_object(request, caller)
        seen = await self._get_service(request.match_info["name"])
        accepted = _select_accepted(seen, validate_body(Acceptance, content).tools)

        def accept(kept: StoredService) -> StoredService:
            pins = kept.pins
            if len(pins) >= MOST_PINS:
                pins = {tool: digest for tool, digest in pins.items() if tool in seen.service.list_definitions()}
            return replace(kept, pins={**pins, **accepted})

        await self._servers().record(seen.name, accepted)
        return await self._change_service(seen.name, accept, caller, "accepted")

    async def _operate_service(
        self, request: web.Request, done: str, change: Callable[[StoredService], StoredService]
    ) -> web.Response:
        caller = self._require_admin(request)
        return await self._change_service(
            (await self._get_service(request.match_info["name"])).name, change, caller, done
        )

    async def _change_service(
        self,
        name: str,
        change: Callable[[StoredService], StoredService],
        caller: Caller,
        done: str,
        *,
        status: int = 200,
    ) -> web.Response:
        mcp_servers = self._servers()
        await mcp_servers.change(name, change)
        log.info("the service %r was %s by %r", name, done, caller.name)
        await mcp_servers.wait_until_applied(name)
        try:
            seen = await self._get_service(name)
        except StoreError as error:
            log.error("the store failed behind a change of the service %r: %s", name, error)
            text = f"The service {name!r} was {done}, and that is stored: look at it once the store works."
            raise UntoldError("store_full", text) from None
        return build_json_answer(build_service_view(seen), status=status)

    def _require_admin(self, request: web.Request) -> Caller:
        caller = self._authorise(request, SCOPE)
        parse_query(request)
        return caller

    async def _get_service(self, name: str) -> ServerStatus:
        for seen in await self._servers().list_services():
            if seen.name == name:
                return seen
        raise _build_not_found_error()

    async def _check_name_conflict(self, name: str) -> None:
        """Check that a service's name fits the names of the others. Raises GatewayError."""
        names = ServiceNames()
        for seen in await self._servers().list_services():
            if seen.name != name and seen.wanted.server is not None:
                names.add(seen.name)
        _check_name(name, beside=names)

    async def _is_configured_service(self, name: str) -> bool:
        """Return whether a service of this name is in the configuration."""
        return any(
            seen.name == name and seen.wanted.source == "configured" for seen in await self._servers().list_services()
        )


def build_service_view(seen: ServerStatus) -> ServiceView:
    server, facts, condition = seen.wanted.server, seen.service.get_service(), seen.condition
    return fill_view(
        ServiceView,
        condition,
        name=seen.name,
        source=seen.wanted.source,
        state=seen.state,
        error=seen.error,
        degraded=condition.state == "running" and bool(condition.error or condition.skipped_lines),
        stopped=seen.wanted.record.stopped,
        description=(server and server.description) or seen.name,
        trigger_keywords=server.trigger_keywords if server is not None else (),
        tools=len(facts.tools) if facts.running else 0,
        changed=sorted(facts.changed),
        settings=None if server is None else mask_settings(server),
        workers=[fill_view(WorkerServiceView, one) for one in seen.others],
    )


def build_tool_views(seen: ServerStatus, *, recorded: Mapping[str, Json]) -> list[ServiceToolView]:
    """Return the tools of a service that runs here, each changed one with its accepted definition.

    `recorded`: definitions by their hashes. Without the accepted one there, `accepted` is null.
    """
    facts, pins = seen.service.get_service(), seen.wanted.record.pins
    views: list[ServiceToolView] = []
    for tool, digest in seen.service.list_definitions().items():
        spec, document = seen.service.find_spec(tool), seen.service.find_document(tool)
        if spec is not None and document is not None:
            is_changed = tool in facts.changed
            accepted = recorded.get(pins.get(tool, "")) if is_changed else None
            views.append(
                ServiceToolView(
                    name=tool,
                    model_name=encode_model_name(f"{seen.name}.{tool}"),
                    **document,
                    sha256=digest,
                    accepted_sha256=pins.get(tool),
                    accepted=cast("ToolDefinitionView | None", accepted),
                    changed=is_changed,
                )
            )
    return views


def _select_accepted(seen: ServerStatus, wanted: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the hashes to accept; they must match the present ones. Raises GatewayError."""
    if seen.condition.state != "running":
        raise GatewayError(
            "service_not_running",
            "The service does not run, so it has no tools to accept: start it, and read its tools again.",
        )
    definitions = dict(seen.service.list_definitions())
    for tool, digest in (wanted or {}).items():
        if definitions.get(tool) != digest:
            raise GatewayError(
                "service_changed",
                "A tool has changed since you read it: read GET .../tools again before you accept it.",
                param=f"tools.{tool}"[:100],
            )
    return definitions if wanted is None else wanted


async def _read_json_object(request: web.Request, caller: Caller) -> Json:
    """Return the body's object; {} for an empty body. Raises GatewayError (request_too_large, invalid_json)."""
    text = await read_body_text(request, caller, limit_bytes=BODY_LIMIT_BYTES)
    return require_object(parse_json(text)) if text else {}


def _check_name(name: object, *, beside: ServiceNames | None = None) -> str:
    try:
        return check_service_name(name, beside=beside)
    except SettingsError as error:
        raise _convert_error(error) from None


def _encode_config(settings: Json, *, kept: Json | None = None) -> bytes:
    """Return the settings to store. Raises GatewayError (unknown_field, invalid_field)."""
    try:
        settings = restore_stored_secrets(settings, kept=kept)
        parse_settings(settings)
    except SettingsError as error:
        raise _convert_error(error) from None
    return orjson.dumps(settings)


def _convert_error(error: SettingsError) -> GatewayError:
    text = str(error) if str(error).endswith("?") else f"{error}."
    code = "unknown_field" if error.unknown else "invalid_field"
    return GatewayError(code, f"{text[:1].upper()}{text[1:]}", param=error.param)


def _build_not_found_error() -> GatewayError:
    return GatewayError(
        "service_not_found", "The gateway has no service of this name: GET /mcp/services lists all services."
    )


def _build_exists_error() -> GatewayError:
    return GatewayError(
        "service_exists",
        "A service of this name exists: choose another name, or change the service with PUT.",
        param="name",
    )


def _is_configured() -> GatewayError:
    return GatewayError(
        "service_is_configured",
        "This service is part of the configuration: change it under 'mcp.servers' there. You can stop it here.",
        param="name",
    )
