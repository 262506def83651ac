"""`gateway store copy`: a new store with the same rows, or none at all."""

import io
import re
import sys
from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.cli.store import TableSum
from gateway.contracts.storage.tables import TABLES
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import audit_line, new, run


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteStore:
    """One that was closed, in the folder where the commands run."""
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    await store.write(new(run(), audit=(audit_line(), audit_line())))
    await store.put_prompt("p", "text", tenant="acme", now_s=1.0)
    await store.close()
    return store


async def test_copy_prints_the_sum_of_each_table(store: SqliteStore, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for the same rows, so that a copy of the copy prints the same."""
    printed = []
    for source, target in (("a.db", "b.db"), ("b.db", "c.db")):
        assert main(["store", "copy", f"sqlite:///{source}", f"sqlite:///./{target}"]) == 0
        printed.append(capsys.readouterr().out.splitlines())
    *sums, summary, advice = printed[0]
    assert sums == printed[1][:-2]
    assert [line.split()[0] for line in sums] == list(TABLES)
    assert {line.split()[0]: line.split()[1] for line in sums}["audit"] == "2"
    assert summary.startswith("copied 6 rows in ") and summary.endswith("both stores have the same rows")
    assert advice == "name the new store in `store`, and start the gateway"
    assert Path("gateway.yaml").write_text("store: sqlite:///c.db\n")
    assert main(["audit", "verify"]) == 0 and "2 lines, none of them changed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("sqlite:///none.db", "sqlite:///b.db", "the store .*none.db' is not a file"),
        ("sqlite:///a.db", "sqlite:///a.db", "a.db' is there already"),
        ("sqlite:///:memory:", "sqlite:///b.db", "a store in memory ends with its gateway"),
        ("sqlite:///a.db", "other://db/x", "no plugin 'other' of kind 'stores'"),
        ("sqlite:///a.db", "postgresql://db", "a PostgreSQL store is named postgresql://USER@HOST/DATABASE"),
    ],
)
async def test_copy_that_cannot_be_made_says_why(
    store: SqliteStore, source: str, target: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And leaves everything as it is."""
    before = Path("a.db").read_bytes()
    assert main(["store", "copy", source, target]) == 1
    printed, error = capsys.readouterr()
    assert printed == "" and re.match(f"gateway: nothing was copied: .*{message}", error)
    assert Path("a.db").read_bytes() == before and [path.name for path in Path().iterdir()] == ["a.db"]


def test_sum_does_not_depend_on_the_order_of_rows() -> None:
    """But on each value, with its type, and on how often a row is there."""
    rows = [("a", 1, None), ("b", 2.0, b"\0"), ("\udc80", 3, "c")]
    whole = TableSum().add(rows)
    assert TableSum().add(rows[2:]).add(rows[:2]) == whole
    others = [rows[:2], [*rows, rows[0]], [*rows[:2], ("\udc80", 3.0, "c")], [*rows[:2], ("\udc80", 3, b"c")]]
    assert all(TableSum().add(other) != whole for other in others)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_terminal_shows_the_progress(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of copying at least, in one line that is written over."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["store", "copy", "sqlite:///a.db", "sqlite:///b.db"]) == 0
    assert re.search(r"\rcopy \w+: \d+ of \d+ rows\x1b\[K\r", terminal.getvalue()) and "\n" not in terminal.getvalue()
