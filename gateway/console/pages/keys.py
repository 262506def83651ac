"""The pages of keys: their list, one of them, and the form that makes one, whose text is shown once."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Final

from aiohttp import web

from gateway.console.api_client import ApiError
from gateway.console.request import ADMIN, Page, Visit, see_other
from gateway.console.sorting import Key, sort_rows
from gateway.contracts.storage.store import Json
from gateway.contracts.times import resolve_time

KEYS: Final = ("context", "keys")
SHOWN: Final = 50
#: Scopes in the order in which a form has them.
SCOPES: Final = ("passthrough", "context", "tools", "approve", "admin", "metrics")
#: What the keys of a page can be sorted by.
COLUMNS: Final[Mapping[str, Key]] = {
    "name": lambda key: key["name"].casefold(),
    "state": itemgetter("state"),
    "until": itemgetter("expires"),
    "used": itemgetter("used_at"),
    "made": lambda key: key["created_by"] if key["origin"] == "store" else None,
}
#: Fields of the form with one entry in each line.
_LISTS: Final = ("models", "tools", "upstreams", "networks")


class KeysPage:
    """The pages of keys. `now_s` returns the time (Unix)."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s

    def list_pages(self) -> tuple[Page, ...]:
        return (
            Page("GET", "/keys", self._list, ADMIN),
            Page("GET", "/keys/new", self._show_new_form, ADMIN),
            Page("POST", "/keys/new", self._create, ADMIN),
            Page("GET", "/keys/{id}", self._show_key, ADMIN),
            Page("POST", "/keys/{id}/rotate", self._rotate, ADMIN),
            Page("POST", "/keys/{id}/revoke", self._revoke, ADMIN),
        )

    async def _list(self, visit: Visit) -> web.Response:
        listed = await visit.api.get(*KEYS, after=visit.query.get("after"), limit=SHOWN)
        keys = sort_rows(listed["data"], visit.query.get("sort"), COLUMNS)
        return await visit.render_page("keys.html", title="Keys", keys=keys, following=listed["next"])

    async def _show_new_form(self, visit: Visit) -> web.Response:
        return await _build_form(visit, {}, ("passthrough", "context"))

    async def _create(self, visit: Visit) -> web.Response:
        scopes = visit.lists.get("scopes", ())
        try:
            made = await visit.api.post(*KEYS, body=self._read_terms(visit.form, scopes))
        except _FormError as error:
            return await _build_form(visit, visit.form, scopes, status=422, field=error.field, problem=str(error))
        except ApiError as error:
            field = str(error.param or "").partition(".")[0]
            return await _build_form(visit, visit.form, scopes, status=error.status, field=field, problem=error.message)
        return await _render_new_key(visit, made)

    async def _show_key(self, visit: Visit) -> web.Response:
        return await _render_page(visit)

    async def _rotate(self, visit: Visit) -> web.Response:
        grace = visit.form.get("grace", "").strip()
        body = {"grace": grace} if grace else {}
        try:
            made = await visit.api.post(*KEYS, visit.match["id"], "rotate", body=body)
        except ApiError as error:
            return await _render_page(visit, status=error.status, problem=error.message)
        return await _render_new_key(visit, made)

    async def _revoke(self, visit: Visit) -> web.Response:
        await visit.api.delete(*KEYS, visit.match["id"])
        return see_other("keys", done="key_revoked")

    def _read_terms(self, form: Mapping[str, str], scopes: Sequence[str]) -> Json:
        """Return what the API takes, of a form. Raises _FormError."""
        terms: Json = {"name": form.get("name", "").strip(), "scopes": list(scopes)}
        for field in _LISTS:
            if lines := _read_lines(form.get(field, "")):
                terms[field] = lines
        if approvals := form.get("approvals", ""):
            terms["approvals"] = approvals
        if expires := form.get("expires", "").strip():
            try:
                terms["expires"] = resolve_time(expires, now_s=self._now_s())
            except ValueError as error:
                raise _FormError("expires", str(error)) from None
        pairs = [line.partition("=") for line in _read_lines(form.get("metadata", ""))]
        if pairs:
            terms["metadata"] = {name.strip(): text.strip() for name, _, text in pairs}
        return terms


class _FormError(Exception):
    """A field of the form that is not filled in as it should be."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


async def _build_form(
    visit: Visit,
    form: Mapping[str, str],
    chosen: Sequence[str],
    *,
    status: int = 200,
    field: str = "",
    problem: str | None = None,
) -> web.Response:
    """Return the form. It offers the scopes that the reader's own key has: it can give no others."""
    return await visit.render_page(
        "key_form.html",
        title="Make a key",
        status=status,
        form={name: text.replace("\r\n", "\n") for name, text in form.items()},
        scopes=[scope for scope in SCOPES if visit.may(scope)],
        chosen=chosen,
        modes=("turn", "hold", "reject"),
        tenant=visit.caller.tenant,
        field=field,
        problem=problem,
    )


async def _render_page(visit: Visit, *, status: int = 200, problem: str | None = None) -> web.Response:
    key = await visit.api.get(*KEYS, visit.match["id"])
    return await visit.render_page("key.html", title="Key", status=status, key=key, problem=problem)


async def _render_new_key(visit: Visit, made: Json) -> web.Response:
    return await visit.render_page("key_made.html", title="The new key", key=made)


def _read_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
