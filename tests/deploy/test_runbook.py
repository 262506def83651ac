"""The commands of docs/runbook.md, run as they stand there: a backup, and what is left of it in a restored store."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from gateway.contracts.storage.store import Store
from gateway.plugins.stores.postgresql.store import PostgresqlStore
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import audit_line, claimed, grant, new, parked, run, write
from tests.postgres import postgres_server, system_programs

from .files import REPOSITORY

PAGE = (REPOSITORY / "docs" / "runbook.md").read_text()
BLOCKS = [dedent(text) for text in re.findall(r"^ *```sh\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL)]
ASKED, APPROVED, LATER = "asked", "approved", "later"
LINES = 5


class Shell:
    """A person who copies commands out of the page, in the folder of gateway.yaml."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self._folder = folder
        commands = folder / "bin"
        commands.mkdir()
        (commands / "gateway").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m gateway "$@"\n')
        (commands / "gateway").chmod(0o755)
        path = f"{commands}:{system_programs()}:{os.environ['PATH']}"
        self._environment = {"PATH": path, "PYTHONPATH": str(REPOSITORY), "HOME": str(folder), **variables}

    def run(self, program: str) -> str:
        """Run the commands that begin with this program, as they stand in their block of the page."""
        [block] = [text for text in BLOCKS if re.match(rf"{program}\b", text)]
        return self.type(block)

    def type(self, commands: str) -> str:
        done = subprocess.run(
            ["sh", "-euc", commands], cwd=self._folder, env=self._environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


async def fill(store: Store) -> None:
    """Open work of each kind: a run under way, a question, an approval that nothing has used, and a grant."""
    await store.open()
    await store.write(new(run(), audit=tuple(audit_line(step=number) for number in range(1, LINES + 1))))
    for name in (ASKED, APPROVED):
        await store.write(parked(name, approval_id=name))
    await store.decide_approval(write(APPROVED, grant=grant(run_id=None)))
    # A database gets the numbers and hashes of its audit log a little later, or before somebody reads it.
    assert len(await store.audit(after=0, limit=10)) == LINES


async def go_on(store: Store) -> None:
    """Work that the backup does not have."""
    await store.write(new(run(LATER)))
    await store.close()


async def check_restored(store: Store) -> None:
    """Nothing that was open goes on or counts, and a decision that comes now is refused."""
    await store.open()
    try:
        runs = (await store.list_runs(tenant="acme", limit=10)).runs
        assert {each.id for each in runs} == {"run_1", ASKED, APPROVED}
        assert {each.state for each in runs} == {"cancelled"}
        assert {one.state for one in await store.list_approvals(tenant="acme", limit=10)} == {"cancelled"}
        assert await store.list_grants(tenant="acme", now_s=0.0, limit=10) == []
        assert (await store.decide_approval(write(ASKED)))[0] == "other"
        assert await claimed(store, "w2") == []
    finally:
        await store.close()


async def test_a_restored_file_has_no_open_work(tmp_path: Path) -> None:
    """The file that was there is kept beside it, and the audit log is whole."""
    shell, place = Shell(tmp_path), str(tmp_path / "gateway.db")
    store = SqliteStore(place)
    await fill(store)
    shell.run("gateway backup")
    await go_on(store)
    shell.run("mkdir before-restore")
    await check_restored(SqliteStore(place))
    assert (tmp_path / "before-restore" / "gateway.db").exists()
    assert f"{LINES} lines, none of them changed" in shell.type("gateway audit verify")


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of a database, beside which is an empty one, `restored`."""
    with postgres_server("CREATE DATABASE restored") as place:
        yield f"postgresql://owner@{place}"


@pytest.mark.postgres
async def test_a_restored_database_has_no_open_work(database: str, tmp_path: Path) -> None:
    """Beside the one that was there, which stays as it is; the audit log is whole."""
    restored = database.replace("/postgres", "/restored")
    shell = Shell(tmp_path, STORE=database, RESTORED=restored)
    store = PostgresqlStore(database, place=database, size=2)
    await fill(store)
    shell.run("pg_dump")
    await go_on(store)
    shell.run("pg_restore")
    await check_restored(PostgresqlStore(restored, place=restored, size=2))
    (tmp_path / "gateway.yaml").write_text(f"store: {restored}\n")
    assert f"{LINES} lines, none of them changed" in shell.type("gateway audit verify")


def test_last_commands_of_a_restore_are_commands_of_the_gateway() -> None:
    """As the table of commands has them."""
    table = (REPOSITORY / "docs" / "commands.md").read_text()
    for command in re.findall(r"`gateway ([a-z-]+)", PAGE) + re.findall(r"^gateway ([a-z-]+)", PAGE, re.MULTILINE):
        assert f"| `gateway {command}" in table, command
