"""The way into the console: what a request must bring before a page sees it.

1. A request that shows the page inside another one, or comes from another one, is refused.
2. Without a session a browser is led to the sign-in. Where the gateway has no keys, the session begins by itself.
3. A form brings the token of its session, or is refused. Nothing is decided by GET.
4. The session's key has one of the scopes of the page.

The door of the gateway (`gateway/auth/host_guard.py`) has refused foreign hosts and origins before.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import unquote

from aiohttp import web

from gateway.approvals.escaping import Language
from gateway.approvals.links import PAGE as LINK
from gateway.console.api_client import ApiClient, ApiError
from gateway.console.language import COOKIE as LANGUAGE_COOKIE
from gateway.console.language import find_language, parse_accept_language
from gateway.console.pages.link import LinkPage
from gateway.console.rendering import TemplateRenderer
from gateway.console.request import CONSOLE, NavigationEntry, Page, Visit, build_html_answer, link
from gateway.console.response_headers import generate_nonce, is_framed, is_of_another_page
from gateway.console.session import ConsoleSession, Sessions
from gateway.console.static import answer_static_file, build_static_url
from gateway.console.theme import COOKIE as THEME_COOKIE
from gateway.console.theme import SYSTEM, choose_theme
from gateway.console.translation import get_translator
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError, build_not_allowed_error
from gateway.contracts.storage.store import StoreError
from gateway.http.error_response import generate_request_id

log = logging.getLogger("gateway")

#: The only one that is decoded: some of Python's codecs take minutes for a body of the size allowed (`punycode`).
FORM_CHARSET: Final = "utf-8"
#: The field of a form that carries its token.
TOKEN: Final = "token"  # noqa: S105 - the name of a field
SIGN_IN, STATIC = "/sign-in", "/static/"
#: Scopes of which a key needs one, so that there is a page for it.
SCOPES: Final = ("approve", "context", "admin")
#: An address below `/console` that a sign-in may lead back to.
_BACK = re.compile(r"(?:/[A-Za-z0-9_.~%/-]*)?(?:\?[A-Za-z0-9_.~%&=+-]*)?")
#: A segment with which a browser leaves the console; an upstream of the same origin answers there.
_UPWARD = re.compile(r"/(?:\.|%2e){1,2}(?:/|\?|$)", re.IGNORECASE)
_YEAR_S: Final = 31_536_000
#: The texts of a sign-in about a key that may not be used, by the error.
REFUSALS: Final[Mapping[str, str]] = {
    "key_expired": "This key has expired: use another one.",
    "network_not_allowed": "This key may not be used from your address.",
}
_VARIABLE = re.compile(r"\\\{([a-z_]+)\\\}")


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a gateway key. `fingerprint` distinguishes the key from another one of the same name.

    With `token`, the console sends requests in the name of this key, and not of a later one with its name.
    """

    caller: Caller
    fingerprint: str
    token: str = field(repr=False)


class Conditions(Protocol):
    """The console's view of the gateway: keys, sessions that ended, and the settings in use."""

    @property
    def keyless(self) -> bool:
        """Return whether the gateway has no keys: every client that reaches it may do everything."""
        ...

    @property
    def is_secure(self) -> bool:
        """Return whether people open the console by https, so that its cookie may travel by nothing else."""
        ...

    def authenticate_key(self, key: str, request: web.Request) -> Holder:
        """Return the holder of the key of this text. Raises GatewayError (401, 403) if the reader may not use it."""
        ...

    def find_holder(self, name: str, fingerprint: str | None, request: web.Request) -> Holder | None:
        """Return the holder of the key of this name and fingerprint, as it is now; None: the reader may not use it."""
        ...

    def record_refusal(self, error: GatewayError, request: web.Request) -> None:
        """Count and log a wrong key."""
        ...

    async def end_session(self, session_id: str, *, until_s: float) -> None:
        """Store that a session has ended; it could not be used after `until_s` in any case."""
        ...

    async def has_session_ended(self, session_id: str) -> bool:
        """Return whether a person signed out of the session."""
        ...


class Console:
    """The console of one worker."""

    def __init__(
        self,
        pages: Sequence[Page],
        *,
        conditions: Conditions,
        sessions: Sessions,
        client: ApiClient,
        rendering: TemplateRenderer,
        links: LinkPage,
        entries: Sequence[NavigationEntry],
    ) -> None:
        self._links = links
        self._entries = entries
        self._conditions = conditions
        self._sessions = sessions
        self._client = client
        self._rendering = rendering
        own = (
            Page("POST", "/sign-out", self._sign_out),
            Page("POST", "/language", self._set_language),
            Page("POST", "/theme", self._set_theme),
        )
        self._pages = [(_compile_pattern(page.path), page) for page in (*pages, *own)]

    @property
    def pages(self) -> Sequence[Page]:
        """Return all pages that need a session."""
        return [page for _, page in self._pages]

    async def answer_request(self, request: web.Request) -> web.StreamResponse:
        """Return the answer to any request below `/console`."""
        path = request.rel_url.raw_path.removeprefix(CONSOLE)
        if path.startswith(STATIC):
            found = answer_static_file(path.removeprefix(STATIC)) if request.method in ("GET", "HEAD") else None
            return found or self.build_refusal_page(request, 404, "not_found", "There is no such file.")
        if is_framed(request):
            return self.build_refusal_page(
                request, 403, "framed", "The console is not shown inside other pages: open it by itself."
            )
        if is_of_another_page(request):
            text = "The console takes no requests of other pages: open it by itself."
            return self.build_refusal_page(request, 403, "origin_not_allowed", text)
        try:
            return await self._dispatch(request, path)
        except ApiError as error:
            return self.build_refusal_page(request, error.status, error.code, error.message)
        except GatewayError as error:
            refusal = self.build_refusal_page(request, error.facts.status, error.code, error.message)
            refusal.headers.update(error.fields)
            return refusal
        except StoreError as error:
            log.error("the store failed: %s", error)
            text = "The gateway's store failed, so nothing was done: its log has the reason."
            return self.build_refusal_page(request, 503, "store_full", text)
        except web.HTTPRequestEntityTooLarge:
            return self.build_refusal_page(
                request, 413, "request_too_large", "The form is too large: shorten what you entered."
            )
        except ConnectionResetError:
            raise  # the browser left
        except Exception:
            request_id = generate_request_id()
            log.exception("a page of the console failed, request id %s", request_id)
            text = "The page failed: look for this request id in the gateway's log: {0}."
            return self.build_refusal_page(request, 500, "internal_error", text, request_id)

    async def _dispatch(self, request: web.Request, path: str) -> web.StreamResponse:
        method = "GET" if request.method == "HEAD" else request.method
        if path == LINK:
            form = await _read_form(request) if method == "POST" else {}
            return await self._links.answer_request(request, method, form, language=get_language(request))
        if path == SIGN_IN and self._conditions.keyless:
            return _redirect(CONSOLE)
        if path == SIGN_IN and method in ("GET", "POST"):
            return await (self._render_login(request) if method == "GET" else self._begin_session(request))
        # The whole form first: a key may go while it arrives.
        form = await _read_form(request) if method == "POST" else {}
        session, holder, begun = await self._find_session(request)
        if session is None or holder is None:
            return self._redirect_to_login(request, path) if method == "GET" else self._build_signed_out_answer(request)
        found = self._match_pages(path)
        if not found:
            return self.build_refusal_page(request, 404, "unknown_route", "There is no such page.")
        if method not in found:
            methods = {*found, "HEAD"} if "GET" in found else found.keys()
            raise build_not_allowed_error("This page does not support the method.", methods)
        page, match = found[method]
        visit = self._build_visit(request, session, holder, match, form)
        if method != "GET" and not self._sessions.accepts(session, visit.form.get(TOKEN, "")):
            text = "The form is not of this session, so nothing was done: load its page again."
            return self.build_refusal_page(request, 403, "form_not_valid", text)
        if not visit.may(*page.scopes):
            text = "Your key may not open this page: it needs one of these scopes: {0}."
            return self.build_refusal_page(request, 403, "scope_missing", text, ", ".join(page.scopes))
        answer = await page.handler(visit)
        if begun and not answer.prepared:
            self._set_cookie(answer, session)
        return answer

    # Sign-in and sign-out.

    async def _render_login(
        self, request: web.Request, *, status: int = 200, problem: str | None = None
    ) -> web.Response:
        language, nonce = get_language(request), generate_nonce()
        back = request.query.get("back", "")
        values = {"back": _read_return_address(back), "problem": problem, **_build_bare_frame(request, nonce)}
        text = self._rendering.render(
            "sign_in.html", language, {"title": get_translator(language)("Sign in"), **values}
        )
        return build_html_answer(text, nonce, status=status)

    async def _begin_session(self, request: web.Request) -> web.StreamResponse:
        """Begin a session of the key that a person entered."""
        form = await _read_form(request)
        key = next(iter(form.get("key", ())), "").strip()
        translate = get_translator(get_language(request))
        try:
            holder = self._conditions.authenticate_key(key, request)
        except GatewayError as error:
            self._conditions.record_refusal(error, request)
            text = REFUSALS.get(error.code, "This is no gateway key: check it.")
            return await self._render_login(request, status=error.facts.status, problem=translate(text))
        if holder.caller.scopes.isdisjoint(SCOPES):
            text = "This key opens no page here: it needs one of these scopes: {0}."
            return await self._render_login(request, status=403, problem=translate(text, ", ".join(SCOPES)))
        answer = _redirect(CONSOLE + _read_return_address(request.query.get("back", "")))
        self._set_cookie(answer, self._sessions.begin(holder.caller.name, holder.fingerprint))
        return answer

    async def _sign_out(self, visit: Visit) -> web.Response:
        """End the session for all browsers that have its cookie."""
        await self._conditions.end_session(visit.session.id, until_s=visit.session.ends_s)
        answer = _redirect(link("sign-in"))
        answer.del_cookie(
            self.cookie_name, path=CONSOLE, httponly=True, samesite="Lax", secure=self._conditions.is_secure
        )
        return answer

    async def _set_language(self, visit: Visit) -> web.Response:
        """Store the reader's choice of a language in a cookie."""
        language = find_language(visit.form.get("language"))
        if language is None:
            raise GatewayError("invalid_field", "The console does not have this language: choose another one.")
        answer = _redirect(CONSOLE + _read_return_address(visit.form.get("back", "")))
        answer.set_cookie(LANGUAGE_COOKIE, language, path=CONSOLE, samesite="Lax", max_age=_YEAR_S, httponly=True)
        return answer

    async def _set_theme(self, visit: Visit) -> web.Response:
        """Store the reader's choice of colours in a cookie. The system's colours need no cookie."""
        name = visit.form.get("theme")
        theme = choose_theme(name)
        if theme is None and name != SYSTEM:
            raise GatewayError("invalid_field", "The console does not have this theme: choose another one.")
        answer = _redirect(CONSOLE + _read_return_address(visit.form.get("back", "")))
        if theme is None:
            answer.del_cookie(THEME_COOKIE, path=CONSOLE, samesite="Lax", httponly=True)
        else:
            answer.set_cookie(THEME_COOKIE, theme, path=CONSOLE, samesite="Lax", max_age=_YEAR_S, httponly=True)
        return answer

    async def _find_session(self, request: web.Request) -> tuple[ConsoleSession | None, Holder | None, bool]:
        """Return the session of a request with the holder of its key, or None; and whether it begins with it."""
        conditions = self._conditions
        session = self._sessions.read(request.cookies.get(self.cookie_name, ""))
        if session is not None and (holder := await self._find_session_holder(session, request)) is not None:
            return session, holder, False
        if conditions.keyless and (holder := conditions.find_holder("", None, request)) is not None:
            return self._sessions.begin("", holder.fingerprint), holder, True
        return None, None, False

    async def _find_session_holder(self, session: ConsoleSession, request: web.Request) -> Holder | None:
        """Return the holder of a session's key, if it is the same as then, and its person has not signed out."""
        if not self._sessions.is_current(session) or await self._conditions.has_session_ended(session.id):
            return None
        # After the wait for the store: it is the one of now.
        return self._conditions.find_holder(session.key, session.fingerprint, request)

    async def is_valid(self, visit: Visit) -> bool:
        """Return whether an open page may go on: its session holds, and its key is in the tenant and may what it might.

        A page that ends comes back as one of the key as it is now.
        """
        holder = await self._find_session_holder(visit.session, visit.request)
        return holder is not None and holder.caller == visit.caller

    def _build_visit(
        self,
        request: web.Request,
        session: ConsoleSession,
        holder: Holder,
        match: Mapping[str, str],
        form: Mapping[str, Sequence[str]],
    ) -> Visit:
        return Visit(
            request=request,
            caller=holder.caller,
            session=session,
            token=self._sessions.build_form_token(session),
            keyless=self._conditions.keyless,
            api=self._client.build_api(holder.token),
            language=get_language(request),
            nonce=generate_nonce(),
            rendering=self._rendering,
            match=match,
            entries=self._entries,
            form={name: values[0] for name, values in form.items()},
            lists=form,
        )

    def _match_pages(self, path: str) -> Mapping[str, tuple[Page, Mapping[str, str]]]:
        """Return the pages of a path with its variable parts, by their methods."""
        pages: dict[str, tuple[Page, Mapping[str, str]]] = {}
        for pattern, page in self._pages:
            if (found := pattern.fullmatch(path.rstrip("/"))) is not None:
                match = {name: unquote(value) for name, value in found.groupdict().items()}
                pages.setdefault(page.method, (page, match))
        return pages

    def _redirect_to_login(self, request: web.Request, path: str) -> web.Response:
        """Return the way to the sign-in, which leads back to the page."""
        if "HX-Request" in request.headers or "text/event-stream" in request.headers.get("Accept", ""):
            return self._build_signed_out_answer(request)
        back = _read_return_address(request.rel_url.raw_path_qs.removeprefix(CONSOLE)) if path else ""
        return _redirect(link("sign-in", back=back or None))

    def _build_signed_out_answer(self, request: web.Request) -> web.Response:
        return self.build_refusal_page(
            request, 401, "signed_out", "You are not signed in, or no longer: sign in again."
        )

    def build_refusal_page(
        self, request: web.Request, status: int, code: str, text: str, *values: object
    ) -> web.Response:
        """Return a page that names what is wrong. `text` is translated."""
        language, nonce = get_language(request), generate_nonce()
        translate = get_translator(language)
        facts = {"code": code, "text": translate(text, *values), "title": translate("Not possible"), "status": status}
        rendered = self._rendering.render("refusal.html", language, {**facts, **_build_bare_frame(request, nonce)})
        return build_html_answer(rendered, nonce, status=status)

    @property
    def cookie_name(self) -> str:
        """Return the name of the session's cookie; with https a browser takes it from https only."""
        return "__Secure-twolane_console" if self._conditions.is_secure else "twolane_console"

    def _set_cookie(self, answer: web.StreamResponse, session: ConsoleSession) -> None:
        answer.set_cookie(
            self.cookie_name,
            self._sessions.build_cookie(session),
            path=CONSOLE,
            httponly=True,
            samesite="Lax",
            secure=self._conditions.is_secure,
        )


def _read_return_address(text: str) -> str:
    """Return the address below the console that a sign-in leads back to; "" for any other."""
    return text if _BACK.fullmatch(text) and not _UPWARD.search(text) else ""


def _redirect(place: str) -> web.Response:
    return web.Response(status=303, headers={"Location": place, "Cache-Control": "no-store"})


def _build_bare_frame(request: web.Request, nonce: str) -> Mapping[str, object]:
    """Return what the frame of a page needs that no session is needed for."""
    theme = choose_theme(request.cookies.get(THEME_COOKIE))
    return {"nonce": nonce, "static": build_static_url, "console": CONSOLE, "theme": theme}


def get_language(request: web.Request) -> Language:
    """Return the language of the reader."""
    return find_language(request.cookies.get(LANGUAGE_COOKIE)) or parse_accept_language(
        request.headers.get("Accept-Language", "")
    )


async def _read_form(request: web.Request) -> Mapping[str, Sequence[str]]:
    """Return the fields of a form. Raises GatewayError for a body that is none."""
    if request.content_type != "application/x-www-form-urlencoded":
        raise GatewayError(
            "unsupported_media_type",
            "The body must be a form: send it from a page of the console.",
            param="content-type",
        )
    try:
        charset = (request.charset or FORM_CHARSET).lower()
        fields = await request.post() if charset == FORM_CHARSET else None
    except ValueError:  # the body is not in UTF-8
        fields = None
    if fields is None:
        raise GatewayError("invalid_field", "The form is not in UTF-8: send it from a page of the console.")
    return {name: [value for value in fields.getall(name) if isinstance(value, str)] for name in fields}


def _compile_pattern(path: str) -> "re.Pattern[str]":
    return re.compile(_VARIABLE.sub(r"(?P<\1>[^/]+)", re.escape(path)))
