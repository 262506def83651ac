"""The tool `http_request`: one request to a web server that the model names, and its answer as text.

1. The target of a connection is judged by the address of its socket, at connect, for every connection. This covers
   names that change their address, spellings of an address and redirects. A call that runs because it was judged
   harmless follows a redirect only where a judge would decide the same again.
2. Nothing is reused from one request to the next: no connections, cookies, or addresses of names.
3. Time and decoded size are bounded. Every failure is a text for the model.
"""

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import aiohttp
from aiohappyeyeballs import AddrInfoType
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDict
from pydantic import Field
from yarl import URL

from gateway.plugin import (
    TOOL_HEADER,
    Exchange,
    Host,
    Json,
    Plugin,
    Resolver,
    ToolCall,
    ToolResult,
    ToolSpec,
    is_metadata,
    is_public,
    normalize_host,
    parse_allowed_host,
)
from gateway.plugin.settings import Duration, Flag, ToolConfig, ValueType, build_size_type
from gateway.plugin.templates import Values, fill_object

from .request import (
    METHODS,
    PORTS,
    RequestRefusedError,
    WebRequest,
    build_redirect,
    decode_body,
    is_alike,
    read_web_request,
)
from .workflow_body import build_body_writer
from .workflow_url import build_url

MAX_REDIRECTS = 5
MAX_SHOWN = 500  # characters of one header
SHOWN_HEADERS = (
    "content-type",
    "location",
    "last-modified",
    "etag",
    "retry-after",
    "allow",
    "link",
    "www-authenticate",
)
TRACE_HEADERS = ("traceparent", "tracestate")
NOT_FOLLOWED = (
    "not followed: this call ran without asking for its own URL; call again with the location, if it is meant"
)
METADATA = "its address hands out credentials of the machine, and no such server is asked without approval"
NOT_PUBLIC = "its address is not on the public internet, and only public servers are asked"


def _check_host(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a host such as api.example.com, in quotes")
    if "*" in parse_allowed_host(value)[0]:
        raise ValueError("expected the name of one host: this tool knows no patterns, so none would be asked")
    return value


class Config(ToolConfig):
    """Asks web servers."""

    untrusted: Flag = Field(default=True, description="Third parties write its results, which taint the run.")
    private_networks: Flag = Field(
        default=False, description="Allow loopback, private and link-local addresses, and any port."
    )
    hosts: tuple[Annotated[str, ValueType(kind="host", parse=_check_host)], ...] = Field(
        default=(), description="Hosts to ask; ports 80 and 443 unless one is named; empty: all."
    )
    timeout: Duration = Field(default=30.0, description="Longest time for a call, redirects included.")
    max_bytes: Annotated[int, build_size_type(1, 1 << 30)] = Field(
        default=1 << 20, description="How much of an answer is read, decoded."
    )


class _AddressError(OSError):
    def __init__(self, reason: str) -> None:
        super().__init__(errno.EACCES, reason)


class HttpRequest:
    """The source of this one tool."""

    def __init__(self, config: Config, *, resolver: AbstractResolver | None = None) -> None:
        self._config = config
        self._hosts = frozenset(parse_allowed_host(host) for host in config.hosts)
        self._resolver = resolver or Resolver(for_models=True)
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def list_tools(self) -> Sequence[ToolSpec]:
        only = f" Only these hosts: {', '.join(self._config.hosts)}." if self._config.hosts else ""
        spec = replace(_SPEC, untrusted=self._config.untrusted, requires_approval=self._config.requires_approval)
        return (replace(spec, description=spec.description + only),)

    def bind(self, arguments: Json, values: Values) -> Json:
        """Put values into the URL as data, and into a body of JSON or of a form. See `Binder`."""
        headers = arguments.get("headers")
        named = headers.items() if isinstance(headers, dict) else ()
        kind = next((str(text) for name, text in named if str(name).lower() == "content-type"), None)
        return fill_object(arguments, values, writers={"url": build_url, "body": build_body_writer(kind)})

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:  # noqa: ARG002 - as for `call`
        """Return why the call cannot run, without a look-up: a look-up would reveal the name to its name server."""
        try:
            request = read_web_request(call.arguments)
            self._check_target(request.url, hop=0)
        except RequestRefusedError as refusal:
            return _format_refusal(refusal)
        if not self._config.private_networks and _is_inside(request.url.host or ""):
            return _format_failure(request, NOT_PUBLIC)
        return None

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        trace = {} if exchange.execution.tool_trace is None else exchange.execution.tool_trace.get_fields("tools")
        try:
            request = read_web_request(call.arguments)
            async with asyncio.timeout(self._config.timeout):
                return await self._follow_redirects(request, trace, harmless=call.harmless)
        except RequestRefusedError as refusal:
            return ToolResult(_format_refusal(refusal), ok=False)
        except TimeoutError:
            return ToolResult(f"No complete answer within {self._config.timeout:g} seconds.", ok=False)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return ToolResult(_format_failure(request, _format_reason(error)), ok=False)

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()

    async def _follow_redirects(self, request: WebRequest, trace: Mapping[str, str], *, harmless: bool) -> ToolResult:
        for hop in range(MAX_REDIRECTS + 1):
            self._check_target(request.url, hop=hop)
            # Leaving this block closes the connection, whatever was read of it, also when the call is cancelled.
            headers = _with_trace(request.headers, trace)
            async with self._get_session(harmless=harmless).request(
                request.method, request.url, headers=headers, data=request.body, allow_redirects=False
            ) as response:
                location = response.headers.get("Location")
                following = build_redirect(request, status=response.status, location=location)
                final = request.url if hop else None
                if following is None:
                    return await self._format_result(response, final=final)
                if harmless and not is_alike(request.url, following.url):
                    return await self._format_result(response, final=final, note=NOT_FOLLOWED)
            request = following
        raise RequestRefusedError(f"more than {MAX_REDIRECTS} redirects, the last one to {request.url.host!r}")

    def _check_target(self, url: URL, *, hop: int) -> None:
        what = f"{'the redirect to' if hop else 'the host'} {url.host!r}"
        host, port, usual = normalize_host(url.host or ""), url.port, PORTS[url.scheme]
        if self._hosts:
            if (host, port) not in self._hosts and (port != usual or (host, None) not in self._hosts):
                raise RequestRefusedError(f"{what}, port {port}, is not one of the hosts that the operator allows")
        elif port not in PORTS.values() and not self._config.private_networks:
            raise RequestRefusedError(f"{what} has port {port}, which is not a port of the web (80, 443)")

    def _get_session(self, *, harmless: bool) -> aiohttp.ClientSession:
        """Return a session, made by the first such call because it needs a running event loop."""
        if harmless not in self._sessions:
            self._sessions[harmless] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    socket_factory=self._open_harmless_socket if harmless else self._open_socket,
                    resolver=self._resolver,
                    use_dns_cache=False,
                    force_close=True,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),  # the timeout of the call covers all of its requests
                trust_env=False,
                headers={"User-Agent": "twolane", TOOL_HEADER: "http_request"},
            )
        return self._sessions[harmless]

    def _open_harmless_socket(self, address: AddrInfoType) -> socket.socket:
        """Return the socket of a call that was judged by the spelling of its host only. Raises OSError."""
        if is_metadata(str(address[4][0])):
            raise _AddressError(METADATA)
        return self._open_socket(address)

    def _open_socket(self, address: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, place = address
        if not self._config.private_networks and not is_public(str(place[0])):
            raise _AddressError(NOT_PUBLIC)
        return socket.socket(family=family, type=kind, proto=protocol)

    async def _format_result(
        self, response: aiohttp.ClientResponse, *, final: URL | None, note: str | None = None
    ) -> ToolResult:
        lines = [f"HTTP {response.status} {_format_header(response.reason or '')}".rstrip()]
        if final is not None:
            lines.append(f"url: {final}")
        lines += [
            f"{name}: {_format_header(response.headers[name])}" for name in SHOWN_HEADERS if name in response.headers
        ]
        if note is not None:
            lines.append(f"redirect: {note}")
        body, whole = await self._read(response)
        content_type = response.content_type if "Content-Type" in response.headers else None
        text = decode_body(body, content_type=content_type, charset=response.charset)
        if text is None:
            text = f"[{'' if whole else 'more than '}{len(body)} bytes that are not text: not shown]"
        elif not whole:
            text += f"\n[... cut after {len(body)} bytes]"
        return ToolResult("\n".join((*lines, "", text)), ok=response.status < 400)

    async def _read(self, response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
        """Read as much as is wanted. Return it, and whether that is all: a bomb is unpacked no further."""
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > self._config.max_bytes:
                response.close()
                return bytes(body[: self._config.max_bytes]), False
        return bytes(body), True


def _with_trace(headers: Mapping[str, str], trace: Mapping[str, str]) -> CIMultiDict[str]:
    """Return the headers with the gateway's own trace context, if it is sent, in place of the model's."""
    ours = TRACE_HEADERS if trace else ()
    kept = [(name, value) for name, value in headers.items() if name.lower() not in ours]
    return CIMultiDict([*kept, *trace.items()])


def _format_refusal(refusal: RequestRefusedError) -> str:
    return f"Refused: {refusal}."


def _format_failure(request: WebRequest, reason: str) -> str:
    return f"The request to {request.url.host!r} failed: {reason}."


def _is_inside(host: str) -> bool:
    """Return whether the text of a host alone shows that it is not on the public internet."""
    name = normalize_host(host)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return not is_public(name)


def _format_header(header: str) -> str:
    """Return a header that JSON can carry: aiohttp stores bytes that are not UTF-8 as lone surrogates."""
    return header[:MAX_SHOWN].encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _format_reason(error: Exception) -> str:
    """Return the reason of an error without the addresses that a name stands for."""
    for reason in (NOT_PUBLIC, METADATA):
        if reason in str(error):
            return reason
    match error:
        case aiohttp.InvalidURL():
            return "its name is neither a host name nor an address in its usual spelling"
        case aiohttp.ClientConnectorDNSError():
            return "its name cannot be resolved"
        case aiohttp.ClientSSLError():
            return "its certificate or its TLS is not valid"
        case aiohttp.ClientConnectorError():
            return "it does not accept connections"
        case aiohttp.ClientPayloadError():
            return "its answer is cut short, or cannot be decoded"
        case aiohttp.ClientResponseError():
            return "its answer is not valid HTTP"
        case aiohttp.ClientConnectionError() | ConnectionError():
            return "it closed the connection without an answer"
    return type(error).__name__


_SPEC = ToolSpec(
    name="http_request",
    description="Sends one HTTP request and returns status, some headers and the body as text; follows redirects.",
    parameters={
        "type": "object",
        "properties": {
            "url": {"type": "string", "description": "Address, with http:// or https://."},
            "method": {"type": "string", "enum": list(METHODS), "default": "GET"},
            "headers": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Header fields to send, as text by their names.",
            },
            "body": {"type": "string", "description": "Text to send; name its Content-Type in `headers`."},
        },
        "required": ["url"],
        "additionalProperties": False,
    },
    category="web",
)


def build(config: Config, host: Host) -> HttpRequest:  # noqa: ARG001 - every plugin is built with a host
    return HttpRequest(config)


def assessor_options(config: Config) -> Json:
    """Return the reach of the tool: a port is the tool's own business."""
    return {
        "private_networks": config.private_networks,
        "hosts": [parse_allowed_host(host)[0] for host in config.hosts],
    }


PLUGIN = Plugin(Config, build, assessor="http", assessor_options=assessor_options)
