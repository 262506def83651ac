"""The HTTP requests to one server: their address, headers and tokens, and the redirects within the origin.

1. A redirect within the origin of the address is followed, and what comes later goes there at once.
2. A call of a tool is never sent again by a redirect: by its first answer it may have run.
3. A call that waited for a token is sent only if what cleared it is unchanged.
4. A header that the configuration sets never replaces one of the protocol.
5. Cookies are kept for the life of a connection.
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Final, TypeAlias

import httpx2
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER

from gateway import __version__
from gateway.mcp.server_facts import CALL_STANDS, ServerEndpoint
from gateway.mcp.transport.guarded_network import GuardedNetwork, HeadError, HttpAnswer, encode_request_head, get_origin
from gateway.mcp.transport.oauth import OAuthTokenSource
from gateway.mcp.transport.rpc_result import RequestNotRunError

#: Redirects that are followed in the life of a connection.
REDIRECTS: Final = 5
#: The statuses of redirects. After one that does not keep the method, only a GET is sent again.
_LEADS_AWAY: Final = (301, 302, 303, 307, 308)
_KEEPS_METHOD: Final = (307, 308)
#: Headers of the protocol, and of HTTP, that each request sets.
_OURS: Final = {
    "accept",
    "accept-encoding",
    "content-length",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
}
_SESSION: Final = "mcp-session-id"
_OURS_BEGIN: Final = "mcp-param-"
_SHOWN_CHARS: Final = 200
#: Of all cookies. More than that is dropped.
_COOKIE_CHARS: Final = 16 << 10
_Fields: TypeAlias = list[tuple[bytes, bytes]]
_BOTH: Final = b"application/json, text/event-stream"


class RedirectError(Exception):
    """The error that the server redirects where no request follows; the text is for the operator."""


class Sender:
    """The sender of requests to one server. `session` and `version` are the protocol's, once they are known."""

    def __init__(self, endpoint: ServerEndpoint, web: GuardedNetwork, tokens: OAuthTokenSource | None) -> None:
        self.session: str | None = None
        self.version: str | None = None
        self._web = web
        self._tokens = tokens
        self._redirects = 0
        self._cookies = httpx2.Cookies()
        self._headers = httpx2.Headers(
            [(name, value) for name, value in endpoint.headers.items() if not _is_gateway_header(name.lower())]
        )
        self._set_url(httpx2.URL(endpoint.url))

    async def post(self, content: bytes, headers: Mapping[str, str], *, is_call: bool = False) -> HttpAnswer:
        """Send a message and return the answer; a call of a tool follows no redirect.

        Raises RedirectError, IssuerError, NotRunError for a call that is not sent, and what `GuardedNetwork.ask` does.
        """
        fields = [
            (b"Accept", _BOTH),
            (b"Content-Type", b"application/json"),
            (b"Content-Length", b"%d" % len(content)),
        ]
        return await self._send_with_redirects("POST", fields, headers, content, is_call=is_call)

    async def get(self, *, last_id: bytes = b"") -> HttpAnswer:
        """Ask for a stream of events, or for the rest of one behind an event; raises what `post` does."""
        fields = [(b"Accept", b"text/event-stream"), (b"Cache-Control", b"no-store")]
        if last_id:
            fields.append((b"Last-Event-ID", last_id))
        return await self._send_with_redirects("GET", fields, {})

    async def delete(self) -> None:
        """End the session at the server; raises what `post` does."""
        (await self._send_with_redirects("DELETE", [], {})).close()

    async def _send_with_redirects(
        self,
        method: str,
        fields: _Fields,
        headers: Mapping[str, str],
        content: bytes = b"",
        *,
        is_call: bool = False,
    ) -> HttpAnswer:
        """Send a request, and follow redirects within the origin. Raises RedirectError."""
        while True:
            answer = await self._send_with_token(
                method, [*fields, *self._build_protocol_headers(headers)], content, is_call=is_call
            )
            if answer.status not in _LEADS_AWAY or not (location := answer.get_field(b"location")):
                return answer
            answer.close()
            if is_call:
                raise RedirectError("it redirects the call, which is not sent again, as it may have run")
            place = _resolve_redirect(self._url, location)
            if place is None or not (method == "GET" or answer.status in _KEEPS_METHOD):
                raise RedirectError(
                    f"it redirects to {_describe_redirect(self._url, location)}, which is not followed: write the "
                    "address of the server itself in url"
                )
            if self._redirects == REDIRECTS:
                raise RedirectError("it redirects again and again: write the address of the server itself in url")
            self._redirects += 1
            self._set_url(place)

    async def _send_with_token(self, method: str, fields: _Fields, content: bytes, *, is_call: bool) -> HttpAnswer:
        """Send a request, with a token if there are any. Another token is requested once, if the server refuses it."""
        if self._tokens is None:
            return await self._send_with_cookies(method, fields, content)
        for is_last in (False, True):
            token = await self._tokens.get_token()
            if is_call and not CALL_STANDS.get(_is_always_cleared)():
                raise RequestNotRunError("what cleared the call has changed")
            answer = await self._send_with_cookies(
                method, [*fields, (b"Authorization", b"Bearer " + token.encode())], content
            )
            if answer.status != 401 or is_last:
                break
            answer.close()
            self._tokens.discard_token(token)
        return answer

    async def _send_with_cookies(self, method: str, fields: _Fields, content: bytes) -> HttpAnswer:
        """Send a request with the server's cookies, by which balancers find the process that has the session."""
        if self._cookies.jar:
            request = httpx2.Request(method, self._url, headers=self._always)
            self._cookies.set_cookie_header(request)
            if b"cookie" not in {name.lower() for name, _ in self._always} and "cookie" in request.headers:
                fields = [*fields, (b"Cookie", request.headers["cookie"].encode("latin-1"))]
        answer = await self._web.ask(self._origin, method, self._encode_head(method, fields) + content)
        if answer.get_field(b"set-cookie"):
            found = [(field.name, field.value) for field in answer.fields if field.name == b"set-cookie"]
            self._cookies.extract_cookies(httpx2.Response(200, headers=found, request=httpx2.Request("GET", self._url)))
            if sum(len(cookie.name) + len(cookie.value or "") for cookie in self._cookies.jar) > _COOKIE_CHARS:
                self._cookies.clear()
        return answer

    def _encode_head(self, method: str, fields: _Fields) -> bytes:
        return encode_request_head(method, self._target, [*self._always, *fields])

    def _build_protocol_headers(self, headers: Mapping[str, str]) -> _Fields:
        """Return the headers of the protocol: for one message, and for the session."""
        found = {_SESSION: self.session, MCP_PROTOCOL_VERSION_HEADER: self.version, **headers}
        try:
            return [(name.encode("ascii"), value.encode("ascii")) for name, value in found.items() if value is not None]
        except UnicodeEncodeError:
            raise HeadError from None

    def _set_url(self, url: httpx2.URL) -> None:
        """Set the address of all further requests, and the headers that depend on it."""
        self._url, self._origin, self._target = url, get_origin(url), url.raw_path
        headers = httpx2.Headers(
            {"Host": url.netloc.decode("ascii"), "User-Agent": f"twolane/{__version__}", "Accept-Encoding": "identity"}
        )
        if url.userinfo:
            headers["Authorization"] = "Basic " + b64encode(f"{url.username}:{url.password}".encode()).decode()
        headers.update(self._headers)
        if self._tokens is not None:
            headers.pop("Authorization", None)
        self._always = headers.raw


def _is_always_cleared() -> bool:
    """Return True: a call that no gate has cleared has nothing that could change."""
    return True


def _is_gateway_header(name: str) -> bool:
    return name in _OURS or name.startswith(_OURS_BEGIN)


def _resolve_redirect(url: httpx2.URL, location: str) -> httpx2.URL | None:
    """Return the target of a redirect to the same origin, or to its TLS port; else None."""
    try:
        place = url.join(location)
    except httpx2.InvalidURL:
        return None
    is_same = (place.scheme, place.host, place.port) == (url.scheme, url.host, url.port)
    is_safer = (url.scheme, url.port, place.scheme, place.port) == ("http", None, "https", None)
    if place.userinfo != url.userinfo or not (is_same or (is_safer and place.host == url.host)):
        return None
    return place


def _describe_redirect(url: httpx2.URL, location: str) -> str:
    """Return where a redirect leads, without what may be secret in it."""
    try:
        place = url.join(location).copy_with(username=None, password=None, query=None, fragment=None)
    except httpx2.InvalidURL:
        return "an address that is none"
    return str(place)[:_SHOWN_CHARS]
