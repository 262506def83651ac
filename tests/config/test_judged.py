"""Names of tools that are judged: which ones there can be."""

import pytest

from gateway.config.judged import no_such_tool


@pytest.mark.parametrize("name", ["execute_sql", "read_result", "clock.now", "clock.*", "mine"])
def test_these_there_can_be(name: str) -> None:
    """Ours, those of services, those of plugins."""
    assert no_such_tool("rules", name, ["mine"]) is None
    assert no_such_tool("assessors", name, ["mine"]) is None


@pytest.mark.parametrize("name", ["exec*", "*", "?ine", "[em]*"])
def test_only_rules_are_globs(name: str) -> None:
    """An assessor under a glob would judge nothing."""
    assert no_such_tool("rules", name) is None
    assert "by its whole name" in (no_such_tool("assessors", name) or "")


def test_others_are_told_with_names_that_there_are() -> None:
    """The nearest, or all of them, within reason."""
    assert no_such_tool("rules", "execute_sq") == "there is no tool 'execute_sq'; did you mean 'execute_sql'?"
    told = no_such_tool("rules", "zzz", ["mine"])
    assert told == (
        "there is no tool 'zzz'; there are: execute_command, execute_sql, file_operations, http_request, mine"
    )
    assert (no_such_tool("rules", "zzz", [f"tool_{n}" for n in range(50)]) or "").endswith(", ...")
