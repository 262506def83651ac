"""A browser over HTTP, without Chromium: cookies, forms as they stand in the page, redirects; and a gateway to browse.

`async with served(tmp_path, key("ann", "approve")) as browser:` starts a gateway in this process: real sockets, SQLite
in `tmp_path`, the demo model, tools that may write below `tmp_path/files`. Then:

    ann = await browser.signed_in("ann")
    approval_id = await ann.asks("file_operations", operation="write", path="a.txt", content="hello")
    page = await ann.get("/console")
    after = await ann.submit(page, "Approve the call of file_operations")
"""

import hashlib
import io
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.cookies import Morsel, SimpleCookie
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urljoin, urlsplit

import aiohttp
from gateways import until_read
from yarl import URL

from gateway.aio.clock import SystemClock
from gateway.testing.local_gateway import LocalGateway

from .html import Element, Form, buttons_of, form_of, read_html

Json = dict[str, Any]
CHAT = "/context/v1/chat/completions"
EVERY_SCOPE = ("passthrough", "context", "approve", "admin", "metrics")


def key(name: str, *scopes: str, tenant: str | None = None, text: str | None = None) -> Json:
    """The entry of `keys` for the key of this name, whose text is `NAME-key`; without scopes: all. Tenant: `team`."""
    digest = hashlib.sha256((text or f"{name}-key").encode()).hexdigest()
    return {"name": name, "sha256": digest, "scopes": list(scopes or EVERY_SCOPE), "tenant": tenant or "team"}


@dataclass(frozen=True)
class Seen:
    """An answer of the gateway as a browser has it. `path` is its address, `cookies` what it set."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    path: str
    cookies: Mapping[str, "Morsel[str]"]

    @property
    def html(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Json:
        found: Json = json.loads(self.body)
        return found

    @cached_property
    def root(self) -> Element:
        return read_html(self.html)

    @property
    def text(self) -> str:
        """The text that a reader sees in the body, on one line."""
        (body,) = self.root.all("body")
        return body.text

    @property
    def main(self) -> str:
        """The text of the page without its frame."""
        (main,) = self.root.all("main")
        return main.text

    @property
    def heading(self) -> str:
        (heading,) = self.root.all("h1")
        return heading.text

    @property
    def problem(self) -> str:
        """The text that says what went wrong, or ""."""
        return " ".join(one.text for one in self.root.all(role="alert") if "hidden" not in one.attributes)

    @property
    def token(self) -> str:
        """The token of the session's forms, the same in all of them."""
        (token,) = {one.attributes["value"] for one in self.root.all("input", name="token")}
        return token

    @property
    def location(self) -> str:
        return self.headers.get("Location", "")

    @property
    def links(self) -> list[str]:
        return [one.attributes["href"] for one in self.root.all("a") if "href" in one.attributes]

    def form(self, button: str, *, action: str = "") -> Form:
        """The form that the button of this accessible name sends to an address that begins with `action`."""
        root = self.root
        found = [form_of(root, one, page=self.path) for one in buttons_of(root) if one.name == button]
        fitting = [form for form in found if form.action.startswith(action)]
        names = [one.name for one in buttons_of(root)]
        assert len(fitting) == 1, f"{len(fitting)} buttons {button!r} at {self.path}; there are {names}"
        return fitting[0]


@dataclass
class Browser:
    """One browser of one person: its cookies, its language. `gateway` is what it looks at."""

    gateway: LocalGateway
    folder: Path
    config: Json
    session: aiohttp.ClientSession
    language: str = "en"
    cookies: dict[str, str] = field(default_factory=dict)
    key: str = ""
    secure: bool = False  # the people's address of the gateway is https: a proxy stands before it

    async def get(self, path: str, *, follow: bool = True, method: str = "GET", **headers: str) -> Seen:
        """The page; `follow`: after the redirects. `headers` have `_` for `-`; an empty one is not sent."""
        return await self._seen(method, path, None, headers, follow=follow)

    async def post(
        self,
        path: str,
        form: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        *,
        follow: bool = True,
        **headers: str,
    ) -> Seen:
        """The answer to these fields, sent as they are: whoever tests a token adds it."""
        sent = {"Origin": self.gateway.base_url, "Content-Type": "application/x-www-form-urlencoded", **headers}
        return await self._seen("POST", path, urlencode(_pairs(form)).encode(), sent, follow=follow)

    async def submit(
        self,
        page: Seen,
        button: str,
        fields: Mapping[str, str | Sequence[str]] = {},
        *,
        action: str = "",
        follow: bool = True,
        **headers: str,
    ) -> Seen:
        """Fill in `fields` of the button's form, which has them, and press the button. A list: several of that name."""
        form = page.form(button, action=action)
        assert set(fields) <= set(form.controls), f"{set(fields) - set(form.controls)} are none of {form.controls}"
        pairs = [(name, value) for name, value in form.fields if name not in fields]
        for name, value in fields.items():
            pairs += [(name, one) for one in ([value] if isinstance(value, str) else value)]
        place = urljoin(page.path, form.action)
        if form.method == "get":
            return await self.get(f"{urlsplit(place).path}?{urlencode(pairs)}", follow=follow, **headers)
        return await self.post(place, pairs, follow=follow, **headers)

    def another(self, *, language: str = "en") -> Self:
        """Another browser, which has no cookies."""
        return type(self)(self.gateway, self.folder, self.config, self.session, language)

    async def signed_in(self, name: str, *, language: str = "en") -> Self:
        """Another browser, in which a person has signed in with the key of this name."""
        browser = self.another(language=language)
        page = await browser.get("/console/sign-in")
        (button,) = buttons_of(page.root)
        seen = await browser.submit(page, button.name, {"key": f"{name}-key"}, follow=False)
        assert (seen.status, seen.location) == (303, "/console"), seen
        browser.key = f"{name}-key"
        return browser

    def api(self, key: str | None = None) -> "Api":
        """The JSON API, as a program with a key of this text uses it; by default with the key of the person."""
        return Api(self, self.key if key is None else key)

    async def asks(self, tool: str = "file_operations", *, key: str | None = None, **arguments: Any) -> str:
        """The id of an approval that waits: a chat with the demo model has called the tool."""
        wanted = arguments or {"operation": "write", "path": "note.txt", "content": "Call Ann"}
        words = f"tool {tool} {json.dumps(wanted)}"
        answer = await self.api(key).post(CHAT, {"model": "demo", "messages": [{"role": "user", "content": words}]})
        assert answer.status == 200, answer.body
        (approval,) = answer.json["context"]["approvals"]
        found: str = approval["id"]
        return found

    async def until(self, approval_id: str, *states: str, key: str | None = None) -> Json:
        """The approval, once it is in one of these states; by default once its call has run."""
        path, wanted = f"/context/approvals/{approval_id}", states or ("done",)
        seen = await until_read(lambda: self.api(key).get(path), lambda seen: seen.json.get("state") in wanted)
        found: Json = seen.json
        return found

    async def reload(self, **sections: object) -> None:
        """Swap to a configuration with other sections."""
        self.config |= sections
        await self.gateway.reload(self.config)

    @asynccontextmanager
    async def listening(self, path: str = "/console/live") -> AsyncIterator["News"]:
        """Open the news of a page, as its script does."""
        headers = {
            **self._headers({"Accept": "text/event-stream"}),
            "Sec-Fetch-Mode": "cors",
            "Sec-Fetch-Dest": "empty",
        }
        async with self.session.get(self.gateway.base_url + path, headers=headers) as response:
            assert (response.status, response.content_type) == (200, "text/event-stream"), await response.read()
            yield News(response)

    async def _seen(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str], *, follow: bool
    ) -> Seen:
        sent = self._headers({name.replace("_", "-"): value for name, value in headers.items()})
        url = URL(self.gateway.base_url + path.partition("#")[0], encoded=True)
        stream = None if data is None else io.BytesIO(data)  # aiohttp warns of large bytes
        async with self.session.request(method, url, data=stream, headers=sent, allow_redirects=False) as response:
            body = await response.read()
            set_now = _set_cookies(response.headers.getall("Set-Cookie", ()))
            seen = Seen(response.status, response.headers, body, path, set_now)
        for name, morsel in set_now.items():
            if morsel["max-age"] == "0" or not morsel.value:
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = morsel.value
        if follow and seen.status in (302, 303):
            return await self.get(
                urljoin(path, seen.location), **({"Host": headers["Host"]} if "Host" in headers else {})
            )
        return seen

    def _headers(self, further: Mapping[str, str]) -> dict[str, str]:
        own = {
            "Accept": "text/html,application/xhtml+xml,*/*;q=0.8",
            "Accept-Language": self.language,
            "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
            "Sec-Fetch-Site": "same-origin",
            "Sec-Fetch-Mode": "navigate",
            "Sec-Fetch-Dest": "document",
            **further,
        }
        return {name: value for name, value in own.items() if value}


@dataclass(frozen=True)
class Api:
    """The JSON API as one key sees it."""

    browser: Browser
    key: str

    async def get(self, path: str) -> Seen:
        return await self.sent("GET", path)

    async def post(self, path: str, body: Mapping[str, Any]) -> Seen:
        return await self.sent("POST", path, body)

    async def sent(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Seen:
        headers = {"X-Gateway-Key": self.key} if self.key else {}
        url = self.browser.gateway.base_url + path
        async with self.browser.session.request(method, url, json=body, headers=headers) as response:
            return Seen(response.status, response.headers, await response.read(), path, {})


@dataclass(frozen=True)
class News:
    """The server-sent events of an open page."""

    response: aiohttp.ClientResponse

    async def next(self, event: str) -> str:
        """The data of the next event of this name, others are passed over; EOFError at the end."""
        while (found := await self.any()) is not None:
            if found[0] == event:
                return found[1]
        raise EOFError(f"the news ended before {event!r}")

    async def any(self) -> tuple[str, str] | None:
        """Name and data of the next event; None at the end. A comment is none."""
        name, data = "", list[str]()
        async for raw in self.response.content:
            line = raw.decode().removesuffix("\n")
            if not line and name:
                return name, "\n".join(data)
            kind, _, value = line.partition(": ")
            if kind == "event":
                name = value
            elif kind == "data":
                data.append(value)
        return None


@asynccontextmanager
async def served(
    folder: Path, *keys: Mapping[str, object], clock: SystemClock | None = None, **sections: object
) -> AsyncIterator[Browser]:
    """A gateway and a browser without a session. `sections` are added to the configuration, or take a place in it."""
    for name in ("files", "workflows"):
        (folder / name).mkdir(exist_ok=True)
    config: Json = {
        "store": f"sqlite:///{folder}/gateway.db",
        "workflows": {"folder": str(folder / "workflows")},
        "tools": {"file_operations": {"roots": [str(folder / "files")], "write": True}},
        "keys": list(keys),
        **sections,
    }
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(LocalGateway(config, clock=clock))
        session = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()))
        yield Browser(gateway, folder, config, session)


def _pairs(form: Mapping[str, str] | Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The fields as a browser sends them: line ends are CR LF (HTML Standard, "constructing the entry list")."""
    pairs = form.items() if isinstance(form, Mapping) else form
    return [(name, value.replace("\r\n", "\n").replace("\n", "\r\n")) for name, value in pairs]


def _set_cookies(lines: Sequence[str]) -> dict[str, "Morsel[str]"]:
    found: dict[str, Morsel[str]] = {}
    for line in lines:
        found.update(SimpleCookie(line))
    return found
