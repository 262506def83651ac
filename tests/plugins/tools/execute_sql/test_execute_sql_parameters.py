"""Values for the parameters of a statement are bound, never read as SQL."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.tools.execute_sql import Config, ExecuteSql

from .asking import EXCHANGE


async def given(place: Path, sql: str, params: object, **more: Any) -> ToolResult:
    tool = ExecuteSql(Config(url=f"sqlite:///{place}", **more))
    return await tool.call(ToolCall(id="c", tool="execute_sql", arguments={"sql": sql, "params": params}), EXCHANGE)


async def test_values_are_bound_and_never_read_as_sql(place: Path) -> None:
    """In their order; a quote in one is a quote."""
    nasty = "x'; DROP TABLE t; --"
    result = await given(place, "SELECT ?, ?, ?, ?, ?", [nasty, 7, 1.5, None, True])
    assert json.loads(result.content)["rows"] == [[nasty, 7, 1.5, None, 1]]
    changed = await given(place, "INSERT INTO t VALUES (?, ?)", [3, nasty], read_only=False)
    assert json.loads(changed.content)["changed"] == 1
    found = await given(place, "SELECT a FROM t WHERE b = ?", [nasty])
    assert json.loads(found.content)["rows"] == [[3]]


@pytest.mark.parametrize(
    ("sql", "params", "says"),
    [
        ("SELECT ?", [], "0 supplied"),
        ("SELECT 1", [1], "1 supplied"),
        ("SELECT ?", [[1]], "parameter 1 is a list"),
        ("SELECT ?", [10**30], "too large"),
        ("SELECT ?", "x", "`params` is not a list"),
        ("SELECT ?", {"a": 1}, "`params` is not a list"),
        ("SELECT ?", [1] * 1001, "at most 1000"),
    ],
)
async def test_unsuitable_parameter_values_are_reported(place: Path, sql: str, params: object, says: str) -> None:
    """A text for the model, like every other failure."""
    result = await given(place, sql, params)
    assert not result.ok and says in result.content
