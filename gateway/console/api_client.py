"""The console's way to the gateway: its JSON API, over a socket of this process, in the name of the reader's key.

A page does nothing else. So it can do nothing that the API does not allow that key, and what a page shows is what the
API answers (docs/decisions/0045-the-console-is-a-client.md).
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
import orjson
from yarl import URL

from gateway.contracts.storage.store import Json

#: The longest wait for an answer that does not stream.
TIMEOUT_S: Final = 60.0
#: So much of an answer is shown that is not the gateway's own error.
MESSAGE_BYTES: Final = 1000
KEY_HEADER: Final = "X-Gateway-Key"
BASE: Final = "http://localhost"


class ApiError(Exception):
    """An error that the API answered: status, code, text, and the field at fault if there is one."""

    def __init__(self, status: int, error: Json) -> None:
        self.status = status
        self.code = str(error.get("code") or "")
        self.message = str(error.get("message") or "")
        self.param = error.get("param")
        super().__init__(f"{status} {self.code}: {self.message}")


class ApiClient:
    """The connections to the API of one process: `data` and `admin` are the paths of its sockets.

    `admin` is that of `admin.listen`, None where the gateway has none.
    """

    def __init__(self, data: str, *, admin: str | None = None) -> None:
        self._data = _open_session(data)
        self._admin = self._data if admin is None else _open_session(admin)

    def build_api(self, token: str) -> "Api":
        """Return the API as the key sees it that `token` stands for."""
        return Api(self._data, self._admin, token)

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        await self._data.close()
        await self._admin.close()


class Api:
    """The API as one key sees it. Paths are given as segments: `get("context", "runs", run_id)`."""

    def __init__(self, data: aiohttp.ClientSession, admin: aiohttp.ClientSession, token: str) -> None:
        self._data = data
        self._admin = admin
        self._token = token

    async def get(self, *path: str, **query: str | int | None) -> Json:
        """Return the answer to GET. A query of None is left out. Raises ApiError."""
        return await self._send_request("GET", path, query=query)

    async def post(self, *path: str, body: Mapping[str, Any] | None = None, **headers: str) -> Json:
        """Return the answer to POST; `headers` are further fields, with `_` for `-`. Raises ApiError."""
        return await self._send_request("POST", path, body=body or {}, headers=headers)

    async def put(self, *path: str, body: Mapping[str, Any]) -> Json:
        """Return the answer to PUT. Raises ApiError."""
        return await self._send_request("PUT", path, body=body)

    async def delete(self, *path: str, **query: str | int | None) -> Json:
        """Return the answer to DELETE, {} for one without a body. Raises ApiError."""
        return await self._send_request("DELETE", path, query=query)

    @asynccontextmanager
    async def stream_post(
        self, *path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open the answer to a POST while it arrives, whatever its status."""
        async with self._choose_session(path).post(
            _build_url(path),
            data=orjson.dumps(body),
            headers=self._build_headers({"Content-Type": "application/json", **(headers or {})}),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as response:
            yield response

    @asynccontextmanager
    async def stream_get(self, *path: str, **query: str | int | None) -> AsyncIterator[aiohttp.StreamReader]:
        """Open the answer to a GET as it arrives, such as the events of a run, or a table. Raises ApiError."""
        session, timeout = self._choose_session(path), aiohttp.ClientTimeout(total=None)
        async with session.get(_build_url(path, query), headers=self._build_headers(), timeout=timeout) as response:
            if response.status >= 400:
                raise parse_error(response.status, await response.read())
            yield response.content

    @asynccontextmanager
    async def events(self) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open the WebSocket of the events of the tenant. Raises ApiError."""
        try:
            async with self._data.ws_connect(
                f"{BASE}/context/ws", headers=self._build_headers(), max_msg_size=0
            ) as socket:
                yield socket
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(error.status, {"code": "", "message": "the events cannot be followed"}) from error

    async def _send_request(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        query: Mapping[str, str | int | None] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        fields = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        if body is not None:
            fields["Content-Type"] = "application/json"
        url, data = _build_url(path, query), None if body is None else orjson.dumps(body)
        try:
            async with self._choose_session(path).request(
                method, url, data=data, headers=self._build_headers(fields)
            ) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError):
            text = "The gateway did not answer its own console: look whether anything has happened, then try again."
            raise ApiError(504, {"code": "no_answer", "message": text}) from None
        if response.status >= 400:
            raise parse_error(response.status, content)
        answer: Json = orjson.loads(content) if content else {}
        return answer

    def _choose_session(self, path: tuple[str, ...]) -> aiohttp.ClientSession:
        return self._admin if path[:2] == ("mcp", "services") else self._data

    def _build_headers(self, further: Mapping[str, str] | None = None) -> Mapping[str, str]:
        return {KEY_HEADER: self._token, **(further or {})}


def parse_error(status: int, content: bytes) -> ApiError:
    """Return the error of an answer. One that passed through may have any form: it is an upstream's."""
    try:
        error = orjson.loads(content)["error"]
        return ApiError(status, error if isinstance(error, dict) else {"message": error})
    except (ValueError, KeyError, TypeError):
        return ApiError(status, {"message": content[:MESSAGE_BYTES].decode("utf-8", "replace")})


def _open_session(socket: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(socket, limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        trust_env=False,
    )


def _build_url(path: tuple[str, ...], query: Mapping[str, str | int | None] | None = None) -> URL:
    """Return the URL of these segments, as they are: one that could lead elsewhere does not exist. Raises ApiError."""
    if any(segment in ("", ".", "..") for segment in path):
        raise ApiError(404, {"code": "unknown_route", "message": "There is no page at this path."})
    given = {name: value for name, value in (query or {}).items() if value is not None}
    target = "/" + "/".join(quote(segment, safe="") for segment in path)
    return URL(f"{BASE}{target}?{urlencode(given)}" if given else f"{BASE}{target}", encoded=True)
