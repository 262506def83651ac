"""One request of a browser to the console: its caller, its language, its form and its answer."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

from aiohttp import web

from gateway.approvals.escaping import Language
from gateway.console.api_client import Api
from gateway.console.rendering import TemplateRenderer
from gateway.console.response_headers import build_page_headers
from gateway.console.session import ConsoleSession
from gateway.console.static import build_static_url
from gateway.console.theme import COOKIE as THEME_COOKIE
from gateway.console.theme import choose_theme
from gateway.console.translation import Translate, get_translator
from gateway.contracts.caller import Caller

CONSOLE: Final = "/console"
#: Scopes of which a reader needs one: to look at runs and approvals, and to operate the gateway.
VIEWING: Final = ("context", "approve")
ADMIN: Final = ("admin",)
#: The text of a page after an action, by the word in its address (`?done=approved`).
DONE: Final[Mapping[str, str]] = {
    "approved": "Approved. The run goes on.",
    "rejected": "Rejected. The call does not run.",
    "counted": "Your approval counts. The call waits for another one, of another key.",
    "changed": "Saved.",
    "deleted": "Deleted.",
    "cancelled": "The run is cancelled.",
    "resumed": "The run goes on.",
    "settled": "Recorded. The run goes on as far as it can.",
    "accepted": "Accepted. The tools can be called again.",
    "started": "The service starts.",
    "stopped": "The service is stopped.",
    "restarted": "The service starts anew.",
    "revoked": "Revoked. The gateway asks again.",
    "key_revoked": "Revoked. The key opens nothing any more.",
    "unasked": "Revoked. Calls of the conversation ask only where the gate does.",
    "assigned": "Assigned.",
    "unassigned": "Assigned to no one any more.",
    "noted": "Noted.",
    "all_approved": "Approved: {0} calls. Their runs go on.",
    "all_rejected": "Rejected: {0} calls. None of them runs.",
    "all_counted": "Your approval counts for {0} calls. Some wait for another one, of another key.",
    "nothing": "Nothing was selected, so nothing was done.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NavigationEntry:
    """One entry of the navigation; `scopes` of which a reader needs one.

    `after` is the path of the entry that comes before one of a feature; None: it is the last.
    """

    path: str
    name: str
    scopes: Sequence[str]
    after: str | None = None


#: The entries of the core; `feature_pages.py` adds those of features.
ENTRIES: Final = (
    NavigationEntry(path="", name="Inbox", scopes=VIEWING),
    NavigationEntry(path="/runs", name="Runs", scopes=VIEWING),
    NavigationEntry(path="/workflows", name="Workflows", scopes=("context",)),
    NavigationEntry(path="/playground", name="Playground", scopes=("context",)),
    NavigationEntry(path="/tools", name="Tools", scopes=VIEWING),
    NavigationEntry(path="/prompts", name="Prompts", scopes=("context",)),
    NavigationEntry(path="/memories", name="Memories", scopes=("context", "admin")),
    NavigationEntry(path="/remembered", name="Remembered", scopes=VIEWING),
    NavigationEntry(path="/keys", name="Keys", scopes=ADMIN),
    NavigationEntry(path="/status", name="Status", scopes=ADMIN),
)


@dataclass(slots=True, kw_only=True)
class Visit:
    """One request whose session and form token were checked. `match` are the variable parts of its path.

    `form` are the fields of a POST, the first of each name; `lists` has all of them. `keyless`: the gateway has no
    keys, so that readers need not sign in.
    """

    request: web.Request
    caller: Caller
    session: ConsoleSession
    token: str
    keyless: bool
    api: Api
    language: Language
    nonce: str
    rendering: TemplateRenderer
    match: Mapping[str, str]
    entries: Sequence[NavigationEntry] = ENTRIES
    form: Mapping[str, str] = field(default_factory=dict)
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def t(self) -> Translate:
        """Return the translation into the reader's language."""
        return get_translator(self.language)

    @property
    def query(self) -> Mapping[str, str]:
        """Return the query, without empty values: a form sends the fields that its reader left empty."""
        return {name: value for name, value in self.request.query.items() if value}

    def may(self, *scopes: str) -> bool:
        """Return whether the reader's key has one of the scopes."""
        return not self.caller.scopes.isdisjoint(scopes)

    async def render_page(self, template: str, *, title: str, status: int = 200, **values: Any) -> web.Response:
        """Return a page. `title` is translated; `values` fill the template."""
        pending = None
        if self.may(*VIEWING):
            pending = (await self.api.get("context", "summary"))["pending"]
        return self.render_answer(template, status=status, **{"title": self.t(title), "pending": pending, **values})

    async def render_page_in_parts(self, template: str, *, part: str, title: str, **values: Any) -> web.Response:
        """Return a page, or only the part of it that an open page reloads regularly."""
        values["live"] = self.query.get("live") != "off"
        if "HX-Request" in self.request.headers:
            return self.render_answer(part, **values)
        return await self.render_page(template, title=title, **values)

    async def stream_table(self, *path: str, file: str, **query: str | int | None) -> web.StreamResponse:
        """Pass on a table of the API as it arrives, for a spreadsheet: `file` is the name that it is kept by."""
        async with self.api.stream_get(*path, format="csv", **query) as rows:
            kept = {"Content-Disposition": f'attachment; filename="{file}"'}
            answer = web.StreamResponse(headers={**build_page_headers(self.nonce), **kept})
            answer.content_type, answer.charset = "text/csv", "utf-8"
            await answer.prepare(self.request)
            if self.request.method != "HEAD":
                async for part in rows.iter_any():
                    await answer.write(part)
            await answer.write_eof()
        return answer

    def render_answer(self, template: str, *, status: int = 200, **values: Any) -> web.Response:
        """Return a page, or a part of one, that needs nothing of the API."""
        return build_html_answer(self.render(template, **values), self.nonce, status=status)

    def render(self, template: str, **values: Any) -> str:
        """Return the text of a template, with what every page has."""
        return self.rendering.render(template, self.language, {**self._build_common_values(), **values})

    def _format_done(self) -> str | None:
        """Return the page's text about a finished action. The address supplies only a known word and a number."""
        word, count = self.query.get("done", ""), self.query.get("count", "")
        return self.t(DONE[word], count if count.isascii() and count.isdigit() else "?") if word in DONE else None

    def _build_common_values(self) -> Mapping[str, Any]:
        return {
            "caller": self.caller,
            "console": CONSOLE,
            "done": self._format_done(),
            "entries": [entry for entry in self.entries if self.may(*entry.scopes)],
            "keyless": self.keyless,
            "may": self.may,
            "nonce": self.nonce,
            "path": self.request.path.removeprefix(CONSOLE),
            "query": self.query,
            "static": build_static_url,
            "theme": choose_theme(self.request.cookies.get(THEME_COOKIE)),
            "token": self.token,
            "link": link,
        }


def build_html_answer(text: str, nonce: str, *, status: int = 200) -> web.Response:
    """Return an HTML answer with the header fields of every page."""
    return web.Response(
        text=text, status=status, content_type="text/html", charset="utf-8", headers=build_page_headers(nonce)
    )


def link(*path: str, **query: str | int | None) -> str:
    """Return the address of a page of the console, of segments that may hold anything."""
    place = CONSOLE + "".join("/" + quote(segment, safe="") for segment in path)
    given = {name: value for name, value in query.items() if value is not None}
    return f"{place}?{urlencode(given)}" if given else place


def see_other(*path: str, **query: str | int | None) -> web.Response:
    """Return the answer to a form that was carried out: the page to look at now (303)."""
    return web.Response(status=303, headers={"Location": link(*path, **query), "Cache-Control": "no-store"})


Handler: TypeAlias = Callable[[Visit], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Page:
    """One page: method, path below `/console` (`/runs/{id}`), handler, and the scopes of which a reader needs one."""

    method: str
    path: str
    handler: Handler
    scopes: Sequence[str] = ("context", "approve", "admin")
