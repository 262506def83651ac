"""Searches through folders under the hardened profile: a few lines by a pattern, and no file as a whole."""

import pytest
from measuring import Effort

from gateway.plugins.assessors.command import CommandAssessor
from gateway.plugins.assessors.command.searches import is_narrow


def rule(command: str, profile: str = "hardened") -> str:
    return CommandAssessor("hardened" if profile == "hardened" else "standard").assess({"command": command}).rule


@pytest.mark.parametrize(
    "command",
    [
        *("grep -rv zzz .", "rg --passthru x", "rg -v zzz", "rg KEY --hidden", "rg -uu password", "grep -ri token ."),
        *("grep -rz foo .", "rg -U foo", "grep -rn -A 9999 foo src", "grep -r -f words src", "rg -f words"),
        *(
            "grep -rE 'foo|' .",
            "grep -r 'foo\\|.' .",
            "grep -rE '(foo)?' .",
            "grep -r '[a-z]' .",
            "grep -r -e foo -e . .",
        ),
        *("grep -rP '(?<=a)' .", "git grep -n .", "git grep -v zzz", "git grep -W foo", "git grep -e foo -e ''"),
        *(
            "grep -r 'f*o*o*' .",
            "rg '\\w\\w\\w'",
            "grep -rn url .git",
            "rg foo .git/config",
            "grep -d recurse '' .",
            "grep --directories=rec . .",
            "grep -r -99999 import .",
            "grep -r --include='.e*' foo .",
            "rg -g '.env*' foo",
        ),
    ],
)
def test_a_search_that_prints_much_asks(command: str) -> None:
    """What does not match, whole files, everything, and what people keep secrets under."""
    assert rule(command) == "sensitive_path"
    assert rule(command, "standard") == "harmless_command"


@pytest.mark.parametrize(
    "command",
    [
        *("grep -rn foo .", "rg -n --hidden foo", "grep -rn 'class User' src", "rg 'fn \\w+' -g '*.rs'", "rg -l ''"),
        *("grep -r password config/", "git grep -n import", "grep -rnE 'TODO|FIXME' src", "grep -rc '' src"),
        *("grep -rn -B3 -A 12 'def main' .", "grep -rn 错误 .", "rg --files -g '*.sql'", "git grep -l token"),
    ],
)
def test_a_search_for_a_few_lines_runs(command: str) -> None:
    """By a pattern with some letters in it, or for names and counts alone."""
    assert rule(command) == "harmless_command"


def test_each_alternative_of_a_pattern_counts() -> None:
    """One that matches every line is enough; what is repeated, optional or a class is certain of nothing."""
    assert all(map(is_narrow, ("foo", "^foo$", "foo|bar", "a.*foo", "x[0-9]+foo", "foo\\(bar\\)", "(get|post) ")))
    assert not any(
        map(is_narrow, ("", ".", "fo", "foo|", "fo?o", "foo\n", "[foo]", "\\w+", "fo{0,9}o", "(foo)*", "f.o"))
    )


@pytest.mark.parametrize("piece", ["[", "(", "a|", "\\", "a*", "[]", "begin", "private"])
def test_a_long_pattern_costs_no_more_than_its_length(piece: str) -> None:
    """As long as a command may be."""
    effort = Effort()
    for _ in range(10):
        rule(f"grep -r '{piece * (4000 // len(piece))}' .")
    assert effort.cpu_s < 2
