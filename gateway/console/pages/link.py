"""The page of a link that decides on one call: for a reader without a key, who gets no session by it.

To load the page decides nothing. Its form carries the link and the token of this page, which are all that it needs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from gateway.approvals.chat_replies import COMMENT_CHARS
from gateway.approvals.escaping import Language
from gateway.approvals.link_desk import LinkDesk, LinkState
from gateway.approvals.links import FIELD, PAGE
from gateway.console.pages.approvals.approval import BASES
from gateway.console.rendering import TemplateRenderer
from gateway.console.request import CONSOLE, build_html_answer, link, see_other
from gateway.console.response_headers import generate_nonce
from gateway.console.static import build_static_url
from gateway.contracts.errors import GatewayError, build_not_allowed_error

#: The texts of the page about a link that decides nothing any more.
_STATES: Final[Mapping[LinkState, str]] = {
    "open": "",
    "used": "You have decided with this link. It does nothing any more.",
    "decided": "This call is decided already. The link does nothing any more.",
    "changed": "This call, its tool or the rules have changed since: decide with a newer link, or with a key.",
    "ended": "The time for this decision is over. The link does nothing any more.",
}


class LinkPage:
    """The page of links, with what they decide."""

    def __init__(self, rendering: TemplateRenderer, desk: LinkDesk) -> None:
        self._rendering = rendering
        self._desk = desk

    async def answer_request(
        self, request: web.Request, method: str, form: Mapping[str, Sequence[str]], *, language: Language
    ) -> web.Response:
        """Return the page, or carry out its form. Raises GatewayError (link_not_valid, method_not_allowed)."""
        if method == "GET":
            return await self._render_page(request.query.get(FIELD, ""), language)
        if method != "POST":
            raise build_not_allowed_error("This page has only GET, and the POST of its form.", ("GET", "HEAD", "POST"))
        sent = {name: values[0] for name, values in form.items()}
        text, decision = sent.get(FIELD, ""), sent.get("decision")
        if decision not in ("approve", "reject"):
            raise GatewayError("invalid_field", "The form has no decision: load the page again.", param="decision")
        reason = sent.get("reason", "").strip()[:COMMENT_CHARS] if decision == "reject" else ""
        try:
            await self._desk.decide(text, sent.get("page", ""), approve=decision == "approve", reason=reason or None)
        except GatewayError as error:
            if error.code == "link_not_valid":
                raise
            return await self._render_page(text, language, status=error.facts.status, problem=error.message)
        return see_other(PAGE.lstrip("/"), **{FIELD: text})

    async def _render_page(
        self, text: str, language: Language, *, status: int = 200, problem: str | None = None
    ) -> web.Response:
        call, nonce = await self._desk.get_linked_call(text), generate_nonce()
        frame: Mapping[str, Any] = {"nonce": nonce, "static": build_static_url, "console": CONSOLE, "link": link}
        page = {"call": call, "approval": call.view, "said": _STATES[call.state], "problem": problem, "bases": BASES}
        titled = {"title": "Approval", "field": FIELD, "token": text, **page}
        answer = build_html_answer(
            self._rendering.render("link.html", language, {**frame, **titled}), nonce, status=status
        )
        # The address is a credential: a Referer of this page has the origin alone, which our own form must send.
        answer.headers["Referrer-Policy"] = "strict-origin"
        answer.headers["X-Robots-Tag"] = "noindex"
        return answer
