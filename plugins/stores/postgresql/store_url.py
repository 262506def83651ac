"""The URL of a PostgreSQL store: `postgresql://USER@HOST:PORT/DATABASE?pool=N`, and what a client library takes of it.

A look at the URL connects to nothing.
"""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from gateway.plugin import ServerState, StoreError

if TYPE_CHECKING:
    from .reader import PostgresqlReader
    from .tables import PostgresqlTables

#: Connections of a process, unless the URL says otherwise.
POOL, MOST_POOL = 4, 100
NEEDS_ASYNCPG: Final = "PostgreSQL needs asyncpg: pip install 'twolane[postgres]'"
EXPECTED: Final = (
    "a PostgreSQL store is named postgresql://USER@HOST/DATABASE, for example postgresql://gateway@db/gateway"
)


def split_pool(url: str) -> tuple[str, int]:
    """Return a URL without its parameter `pool`, and the number of connections. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme != "postgresql" or "\0" in url or not parts.path.strip("/"):
        raise ValueError(EXPECTED)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    pools = [value for name, value in pairs if name == "pool"]
    if len(pools) > 1 or not all(
        value.isascii() and value.isdecimal() and 1 <= int(value) <= MOST_POOL for value in pools
    ):
        raise ValueError(f"`pool` in the URL of the store is a number of connections from 1 to {MOST_POOL}")
    rest = urlencode([(name, value) for name, value in pairs if name != "pool"])
    return url.partition("?")[0] + ("?" + rest if rest else ""), int(pools[0]) if pools else POOL


def redact_url(url: str) -> str:
    """Return a URL without password and parameters, which may contain one."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "postgresql://***"
    login, at, host = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{login.partition(':')[0]}{at}{host}{parts.path}"


class PostgresqlAddress:
    """The `gateway.contracts.storage.store.StoreAddress` of a database."""

    file: Path | None = None

    is_shared = True

    def __init__(self, url: str, folder: Path) -> None:
        del folder
        self.url, self.redacted_url = url, redact_url(url)

    @property
    def connections(self) -> int:
        return split_pool(self.url)[1]

    def read_state(self) -> ServerState:
        if (problem := self.problem()) is not None:
            raise StoreError(problem)
        # As below.
        from .reader import read_state

        return read_state(split_pool(self.url)[0])

    def get_reader(self) -> "PostgresqlReader":
        if (problem := self.problem()) is not None:
            raise StoreError(problem)
        # asyncpg is an optional dependency, and this module is imported to check a configuration.
        from .reader import PostgresqlReader

        return PostgresqlReader(split_pool(self.url)[0])

    def get_tables(self) -> "PostgresqlTables":
        if (problem := self.problem()) is not None:
            raise StoreError(problem)
        # asyncpg is an optional dependency, and a gateway copies no store.
        from .tables import PostgresqlTables

        return PostgresqlTables(split_pool(self.url)[0], place=self.redacted_url)

    def problem(self) -> str | None:
        if importlib.util.find_spec("asyncpg") is None:
            return NEEDS_ASYNCPG
        try:
            split_pool(self.url)
        except ValueError as error:
            return str(error)
        return None
