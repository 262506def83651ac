"""Tables for spreadsheets: CSV (RFC 4180) with a line of names, no cell a formula; whole, or as they are read."""

import csv
import io
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import astuple, fields
from datetime import UTC, datetime
from typing import Final
from unicodedata import normalize

from aiohttp import HttpVersion11, web

from gateway.api.request import parse_query_choice
from gateway.api.views import RunView
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.audit_chain import AuditLine, AuditRow

FORMATS: Final = ("json", "csv")
#: The names of the cells of a run, and of a line of the audit log.
COLUMNS: Final = (
    *("id", "kind", "state", "chain", "conversation", "caller", "workflow", "tool", "client", "effects"),
    *("created_at", "updated_at", "pending"),
)
AUDIT_COLUMNS: Final = ("seq", "created_at", *(field.name for field in fields(AuditLine)), "hash")
#: What spreadsheets take for the beginning of a formula. Upstreams name models, and clients conversations.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def write_table(rows: Iterable[Sequence[object]]) -> bytes:
    """Return rows as CSV in UTF-8. Numbers stay numbers, None is an empty cell, and no text is a formula."""
    text = io.StringIO()
    csv.writer(text).writerows(
        [_escape_formula(cell) if isinstance(cell, str) else cell for cell in row] for row in rows
    )
    return text.getvalue().encode("utf-8", "replace")


def format_moment(time_s: float) -> str:
    """Return a Unix time as spreadsheets read it: in UTC, to the millisecond."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def is_table(query: Mapping[str, str]) -> bool:
    """Return whether the query wants a table, which has all rows. Raises GatewayError (invalid_field)."""
    wanted = parse_query_choice(query, "format", FORMATS) == "csv"
    if wanted and "limit" in query:
        raise GatewayError("invalid_field", "A table has all rows that fit: leave 'limit' out.", param="limit")
    return wanted


def run_row(view: RunView) -> Sequence[object]:
    """Return the cells of a run, of its view."""
    client = view.client and " ".join(str(view.client.get(name) or "") for name in ("name", "version")).strip()
    shown = {"client": client, "created_at": format_moment(view.created_s), "updated_at": format_moment(view.updated_s)}
    return [shown[name] if name in shown else getattr(view, name) for name in COLUMNS]


def audit_row(row: AuditRow) -> Sequence[object]:
    """Return the cells of a line of the audit log."""
    return [row.seq, format_moment(row.line.created_s), *astuple(row.line), row.hash]


async def stream_table(
    request: web.Request, names: Sequence[str], parts: AsyncIterator[Sequence[Sequence[object]]], *, file: str
) -> web.StreamResponse:
    """Write a table while its parts are read, as slowly as its reader takes it. `file` is the name that it is kept by.

    What the first part raises is the answer. What a later one raises ends the connection before the answer is whole
    (`Facade.prepared`), so that a table that was cut does not look whole.
    """
    first = await anext(parts, ())
    answer = web.StreamResponse(headers={"Content-Disposition": f'attachment; filename="{file}"'})
    answer.content_type, answer.charset = "text/csv", "utf-8"
    if request.version >= HttpVersion11:
        answer.enable_chunked_encoding()
    await answer.prepare(request)
    if request.method != "HEAD":
        await answer.write(write_table([names, *first]))
        async for part in parts:
            await answer.write(write_table(part))
    await answer.write_eof()
    return answer


def _escape_formula(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula, also where full-width characters are plain ones to it."""
    begins = text.startswith(_FORMULA) or normalize("NFKC", text).lstrip().startswith(_FORMULA)
    return f"'{text}" if begins else text
