"""Lists of items, as OpenAI's API has them: what their query may say, and the answer."""

from collections.abc import Mapping, Sequence
from typing import Final

from aiohttp import web

from gateway.api.request import build_stale_cursor_error, parse_limit, parse_query
from gateway.api.views import build_json_answer
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.responses.fields import INCLUDABLE

#: Items of a page: as many as OpenAI's API has, unless the query sets a number, and at most.
_LIMIT, _MOST = 20, 100
#: SDKs write lists with brackets.
_INCLUDE: Final = ("include", "include[]")


def query_of_items(request: web.Request, *known: str) -> Mapping[str, str]:
    """Return the query of a page that shows items, without `include`: what it names is shown in any case.

    Raises GatewayError (unknown_field, invalid_field).
    """
    for name in _INCLUDE:
        for value in request.query.getall(name, ()):
            if value not in INCLUDABLE:
                words = ", ".join(map(repr, INCLUDABLE))
                raise GatewayError(
                    "invalid_field", f"The value of {name!r} is not known: send one of {words}.", param=name
                )
    return parse_query(request, *known, lists=_INCLUDE)


def read_items_limit(query: Mapping[str, str]) -> int:
    """Return the length of a page of items. Raises GatewayError (invalid_field)."""
    return min(parse_limit(query, default=_LIMIT), _MOST)


def select_page(items: Sequence[Json], query: Mapping[str, str]) -> web.Response:
    """Return the page of a list that a query selects. Raises GatewayError (invalid_field)."""
    begin, limit = 0, read_items_limit(query)
    if (after := query.get("after")) is not None:
        begin = 1 + next((at for at, item in enumerate(items) if item["id"] == after), -1)
        if not begin:
            raise build_stale_cursor_error("after")
    return answer_items(items[begin : begin + limit], has_more=begin + limit < len(items))


def answer_items(items: Sequence[Json], *, has_more: bool) -> web.Response:
    """Return a page of items."""
    return build_json_answer(
        {
            "object": "list",
            "data": items,
            "first_id": items[0]["id"] if items else None,
            "last_id": items[-1]["id"] if items else None,
            "has_more": has_more,
        }
    )
