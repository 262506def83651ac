"""`gateway store copy`: all that a store has, into a new store, of the same kind or of another.

1. The source is read as it is at one moment, and stays as it is. No gateway may use it meanwhile.
2. The target is there whole, with the same rows, or it is not there.
3. The rows are never all in memory: they are copied in pieces, and compared by counts and sums of hashes.
"""

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.cli.commands import CommandError, Commands, add_group, add_reading
from gateway.config import LoadedConfig
from gateway.contracts.storage.store import StoreError, UncertainError
from gateway.contracts.storage.tables import TABLES, StoreTables, TableReader, TableRow, TableWriter
from gateway.registry.loader import PluginProblem
from gateway.registry.stores import resolve_store

_HASHES: Final = 1 << 256
#: Between two looks at the progress.
_PROGRESS_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class TableSum:
    """The number of rows of a table, and the sum of their hashes, which does not depend on their order."""

    rows: int = 0
    total: int = 0

    def add(self, rows: Sequence[TableRow]) -> "TableSum":
        """Return the sum with these rows."""
        total = self.total
        for row in rows:
            total += int.from_bytes(hashlib.sha256(repr(row).encode("utf-8", "surrogatepass")).digest())
        return TableSum(self.rows + len(rows), total % _HASHES)

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.total:064x}"


def add(commands: Commands) -> None:
    """Add `gateway store` and the commands below it."""
    group = add_group(commands, "store", "move the store from one database to another")
    p = add_reading(
        group,
        "copy",
        copy_store,
        "copy a store that no gateway uses into a new one, and compare the two",
        example="gateway store copy sqlite:///./gateway.db postgresql://gateway@db/gateway",
    )
    p.add_argument("source", metavar="SOURCE", help="URL of the store, such as sqlite:///./gateway.db")
    p.add_argument("target", metavar="TARGET", help="URL of the new store, such as postgresql://gateway@db/gateway")


def copy_store(loaded: LoadedConfig, source: str, target: str) -> Iterator[str]:
    """Copy the store with the URL `source` to the one with the URL `target`, and yield lines to print.

    Raises CommandError. A relative file begins at the working folder.
    """
    plugins = loaded.settings.plugins.folder
    begin_s = time.monotonic()
    try:
        addresses = [resolve_store(url, folder=Path.cwd(), plugins=plugins)[1] for url in (source, target)]
        sums = _copy(*(address.get_tables() for address in addresses), show=_Progress().show)
    except PluginProblem as problem:
        raise CommandError(f"nothing was copied: {problem.message}") from None
    except UncertainError as error:
        raise CommandError(str(error)) from error
    except StoreError as error:
        raise CommandError(f"nothing was copied: {error}") from error
    width = max(map(len, sums))
    for table, table_sum in sums.items():
        yield f"{table:<{width}}  {table_sum}"
    rows, took_s = sum(table_sum.rows for table_sum in sums.values()), time.monotonic() - begin_s
    yield f"copied {rows} rows in {took_s:.1f} s: both stores have the same rows"
    yield "name the new store in `store`, and start the gateway"


def _copy(source: StoreTables, target: StoreTables, *, show: Callable[[str, int, int], None]) -> dict[str, TableSum]:
    """Copy all tables, compare them, and return their sums. Raises StoreError; then there is no new store."""
    sums: dict[str, TableSum] = {}
    with source.open_source() as reader, target.open_target() as writer:
        for table in TABLES:
            sums[table] = _copy_table(reader, writer, table, show=show)
        writer.finish()
        for table, wanted in sums.items():
            found = TableSum()
            for rows in writer.read_rows(table):
                found = found.add(rows)
                show(f"compare {table}", found.rows, wanted.rows)
            if found != wanted:
                raise StoreError(f"the table {table!r} is not the same: {wanted} in the source, {found} in the target")
        writer.commit()
    return sums


def _copy_table(
    reader: TableReader, writer: TableWriter, table: str, *, show: Callable[[str, int, int], None]
) -> TableSum:
    count, copied = reader.count_rows(table), TableSum()
    for rows in reader.read_rows(table):
        writer.write_rows(table, rows)
        copied = copied.add(rows)
        show(f"copy {table}", copied.rows, count)
    if copied.rows != count:
        raise StoreError(f"the table {table!r} has {count} rows, and {copied.rows} of them could be read")
    return copied


class _Progress:
    """The line on a terminal that shows how far the work is."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def show(self, work: str, done: int, total: int) -> None:
        """Write how far the work is, to a terminal only, and now and then."""
        now_s = time.monotonic()
        if now_s >= self._next_s and sys.stderr.isatty():
            self._next_s = now_s + _PROGRESS_S
            sys.stderr.write(f"\r{work}: {done} of {total} rows\x1b[K\r")
            sys.stderr.flush()
