"""The virtual tables of a file, which run statements of their own: who wrote the file may have written what these read.

A module such as FTS5 reads its own tables (`notes_config`) as soon as a statement is compiled. A file in which one of
them is a view has that view run then, without end if it has none. SQLite itself never makes such a file.
"""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from gateway.plugin.word_lists import split_words

from .sqlite_expansion import TooLargeError, check_expansion

#: Behind the name of a virtual table and `_`: the tables that its module keeps, and reads by itself.
_TEXTS: Final = split_words("content segments segdir docsize stat")
_OWN: Final = {
    "fts5": split_words("config content data docsize idx"),
    **dict.fromkeys(("fts3", "fts4"), _TEXTS),
    **dict.fromkeys(("rtree", "rtree_i32", "geopoly"), split_words("node rowid parent")),
}
_ANY: Final = frozenset().union(*_OWN.values())
_MODULE: Final = re.compile(r"\busing\s++(\w++)", re.IGNORECASE)
_QUOTES: Final = frozenset("\"'`]")  # doubled where they stand in a quoted name
_SCHEMA: Final = "SELECT type, name, coalesce(rootpage, 0), coalesce(sql, '') FROM sqlite_schema"
_COMPUTED: Final = "SELECT count(*) FROM pragma_table_xinfo(?) WHERE hidden IN (2, 3)"


class DamagedError(sqlite3.DatabaseError):
    """A file whose virtual tables would run SQL from another source."""


def check_virtual(connection: sqlite3.Connection) -> Sequence[str]:
    """Return the queries that virtual tables may run by themselves on what users made. Raises DamagedError."""
    schema: list[tuple[str, str, int, str]] = connection.execute(_SCHEMA).fetchall()
    virtual = {name: sql for kind, name, page, sql in schema if kind == "table" and not page}
    if not virtual:
        return ()
    own = {place: name for name, sql in virtual.items() for place in _iterate_shadow_tables(name, sql)}
    views = [(name, sql) for kind, name, _, sql in schema if kind == "view"]
    behind = "\n".join(virtual.values()).lower()
    queries = []
    for kind, name, page, _ in schema:
        place = name.lower()
        is_read = place in own or place in behind or not _QUOTES.isdisjoint(name)
        if kind not in ("table", "view") or not is_read:
            continue
        computes = kind == "view" or (page and connection.execute(_COMPUTED, (name,)).fetchone() != (0,))
        if place in own and (computes or not page):
            raise DamagedError(f"the file is damaged: {name!r} is not the table that {own[place]!r} keeps")
        if computes:
            queries.append(f"SELECT * FROM {_quote_name(name)}")  # noqa: S608 - quoted
            try:
                check_expansion(queries[-1], views)
            except TooLargeError as error:
                raise DamagedError(f"{name!r}, which a virtual table reads, cannot be read: {error}") from None
    return queries


def _iterate_shadow_tables(name: str, sql: str) -> Iterator[str]:
    """Yield the names of the tables that a virtual table keeps, in lower case."""
    module = _MODULE.search(sql)
    for part in _OWN.get(module[1].lower(), _ANY) if module else _ANY:
        place = f"{name}_{part}".lower()
        if part != "content" or place not in sql.lower():  # FTS5 may read a view of that name, if an option names it
            yield place


def open_virtual(connection: sqlite3.Connection, named: Sequence[str] = ()) -> None:
    """Open the virtual tables of the file, and others that are `named`: they prepare their statements then.

    Behind an authorizer they could not: a module declares its columns as a table that is created.
    """
    found: Sequence[Any] = connection.execute(_SCHEMA).fetchall()
    for name in (*(name for kind, name, page, _ in found if kind == "table" and not page), *named):
        with suppress(sqlite3.Error):  # of a module that is not there
            connection.execute(f"SELECT 1 FROM {_quote_name(name)} LIMIT 0")  # noqa: S608 - quoted


def _quote_name(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))
