"""Requirement: code-level whitelist fallback."""

from pathlib import Path

import pytest

from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream

from .gated import SAFE, WRITE, asked_first, box, ran_at_once
from .models import Json, calls, says
from .talking import talking

SQL_SAFE = ("SELECT name FROM pets", "select count(*) from pets -- all", "EXPLAIN SELECT * FROM pets")
SQL_RISKY = (
    "DELETE FROM pets",
    "UPDATE pets SET legs = 4",
    "DROP TABLE pets",
    "WITH gone AS (DELETE FROM pets RETURNING *) SELECT * FROM gone",
)


@pytest.mark.parametrize(("sql", "known"), [*((s, True) for s in SQL_SAFE), *((s, False) for s in SQL_RISKY[:3])])
async def test_sql_whitelist_fallback(tmp_path: Path, sql: str, *, known: bool) -> None:
    """Statements that read run; all others ask."""
    await falls_back(tmp_path, "execute_sql", {"sql": sql}, known=known)


@pytest.mark.parametrize("sql", ["SHOW TABLES", "DESCRIBE pets", *SQL_RISKY])
async def test_sql_whitelist_fallback_judges_statements_unknown_to_the_database(tmp_path: Path, sql: str) -> None:
    """SHOW and DESCRIBE are judged as those that read, whatever becomes of them."""
    expected = ("confirm", "default") if sql in SQL_RISKY else ("auto", "whitelist")
    assert await judged(tmp_path, "execute_sql", {"sql": sql}) == expected


@pytest.mark.parametrize(
    ("command", "known"),
    [
        *((c, True) for c in ("ls -la", "cat notes.txt", "pwd", "echo hello", "grep safe notes.txt")),
        *((c, False) for c in ("rm notes.txt", "touch x", "echo x > notes.txt", "ls; rm notes.txt", "ls $(touch x)")),
    ],
)
async def test_command_whitelist_fallback(tmp_path: Path, command: str, *, known: bool) -> None:
    """Known commands that only look run; all others ask, however they are wrapped."""
    await falls_back(tmp_path, "execute_command", {"command": command}, known=known)


@pytest.mark.parametrize(
    ("arguments", "known"),
    [
        ({"operation": "read", "path": "notes.txt"}, True),
        ({"operation": "list", "path": "."}, True),
        ({"operation": "exists", "path": "nothing.txt"}, True),
        (WRITE, False),
    ],
)
async def test_file_operation_whitelist_fallback(tmp_path: Path, arguments: Json, *, known: bool) -> None:
    """Reading runs; writing asks."""
    await falls_back(tmp_path, "file_operations", arguments, known=known)


@pytest.mark.parametrize(
    ("method", "known"),
    [
        *((method, True) for method in ("GET", "HEAD", "OPTIONS")),
        *((method, False) for method in ("POST", "PUT", "DELETE", "PATCH")),
    ],
)
async def test_http_request_whitelist_fallback(tmp_path: Path, method: str, *, known: bool) -> None:
    """Methods that change nothing run; all others ask, and nothing is sent."""
    async with FakeUpstream(serve(build_answer(200, b"" if method == "HEAD" else b"seen"))) as site:
        arguments = {"method": method, "url": f"{site.base_url}/page"}
        await falls_back(tmp_path, "http_request", arguments, known=known)
        assert [request.method for request in site.requests] == ([method.encode()] if known else [])


async def falls_back(folder: Path, tool: str, arguments: Json, *, known: bool) -> None:
    """Without a word of the model about the risk."""
    asked = calls(tool, risk_level=None, **arguments)
    answers = (asked, says(SAFE[1])) if known else (asked,)
    async with talking(*answers, tools=box(folder, commands=tool == "execute_command")) as world:
        if known:
            await ran_at_once(world, tool=tool, basis="whitelist")
        else:
            await asked_first(world, tool=tool, basis="default")
    assert (folder / "work/notes.txt").read_text() == "The safe is behind the mirror.\n"
    assert sorted(path.name for path in (folder / "work").iterdir()) == ["notes.txt"]


async def judged(folder: Path, tool: str, arguments: Json) -> tuple[str, str]:
    """Verdict and basis, without a run."""
    asked = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
    async with talking(tools=box(folder, commands=tool == "execute_command")) as world:
        calls_ = [{"tool": tool, "parameters": arguments}]
        (verdict,) = (await world.post({**asked, "calls": calls_}, path="/context/explain")).json["would_be_verdicts"]
        return verdict["decision"], verdict["basis"]
