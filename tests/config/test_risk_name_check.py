"""Names of tools that are judged: which ones there can be."""

import pytest

from gateway.config.risk_name_check import describe_idle_rule, describe_missing_tool


@pytest.mark.parametrize("name", ["execute_sql", "read_result", "clock.now", "clock.*", "mine"])
def test_possible_tool_names_are_accepted(name: str) -> None:
    """Ours, those of services, those of plugins."""
    assert describe_missing_tool("rules", name, ["mine"]) is None
    assert describe_missing_tool("assessors", name, ["mine"]) is None


@pytest.mark.parametrize("name", ["exec*", "*", "?ine", "[em]*"])
def test_only_rules_are_globs(name: str) -> None:
    """An assessor under a glob would judge nothing."""
    assert describe_missing_tool("rules", name) is None
    assert "by its whole name" in (describe_missing_tool("assessors", name) or "")


def test_unknown_tool_error_suggests_existing_names() -> None:
    """The nearest, or all of them, within reason."""
    assert describe_missing_tool("rules", "execute_sq") == "there is no tool 'execute_sq'; did you mean 'execute_sql'?"
    told = describe_missing_tool("rules", "zzz", ["mine"])
    known = "demo_note, execute_command, execute_sql, file_operations, http_request, mine"
    assert told == f"there is no tool 'zzz'; there are: {known}"
    assert (describe_missing_tool("rules", "zzz", [f"tool_{n}" for n in range(50)]) or "").endswith(", ...")


@pytest.mark.parametrize(
    "rule", ["execute_*", "mine*", "read_result", "[x]*.y", "git*", "github.*", "*_delete", "g?thub.x"]
)
def test_risk_rules_that_may_apply_do_not_warn(rule: str) -> None:
    """Tools that are on, built-in ones in any case, and whatever a configured server may bring one day."""
    assert describe_idle_rule(rule, ["mine_too"], ["github", "x"]) is None


@pytest.mark.parametrize("rule", ["exec_*", "gitlab.*", "file_operation?s", "x[ab]*"])
def test_risk_glob_that_matches_no_tool_warns(rule: str) -> None:
    """It would be a guard that guards nothing."""
    assert f"no tool has a name like '{rule}'" in (describe_idle_rule(rule, ["mine"], ["github"]) or "")
