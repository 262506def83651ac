"""The requests to every engine, and the words of its failures."""

from pathlib import Path

import pytest

from gateway.plugins.tools.execute_sql.engine import EngineDoubt, Statement, StatementError
from gateway.plugins.tools.execute_sql.rows import SqlRows
from gateway.plugins.tools.execute_sql.sqlite import Sqlite


async def test_engine_runs_harmless_statements_and_doubts_others(tmp_path: Path) -> None:
    """A doubt names its rule and gives a sentence; a failure is a text without a full stop."""
    (tmp_path / "data.db").touch()
    engine = Sqlite(str(tmp_path / "data.db"), read_only=False)
    rows = SqlRows(max_rows=10, max_bytes=1000)
    assert await engine.find_doubt(Statement("SELECT ?", (1,))) is None
    await engine.run(Statement("SELECT ?", (1,), harmless=True), rows)
    assert rows.rows == ["[1]"]
    doubt = await engine.find_doubt(Statement("CREATE TABLE t (a)"))
    assert isinstance(doubt, EngineDoubt) and doubt.rule == "engine" and doubt.reason.endswith(".")
    with pytest.raises(StatementError) as failed:
        await engine.run(Statement("CREATE TABLE t (a)", harmless=True), rows)
    assert not str(failed.value).endswith(".")
    await engine.close()
    await engine.close()


async def test_statement_not_judged_harmless_is_unrestricted(tmp_path: Path) -> None:
    """A person may let it write."""
    (tmp_path / "data.db").touch()
    engine = Sqlite(str(tmp_path / "data.db"), read_only=False)
    await engine.run(Statement("CREATE TABLE t (a)"), SqlRows(max_rows=10, max_bytes=1000))
    assert await engine.find_doubt(Statement("SELECT a FROM t")) is None
