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
            "git grep --not -e zzzz",
            "git grep -h -e import --or --not -e import",
            "rg -c --json 'fo?'",
            "grep -rhP 'foo|(*ACCEPT)' .",
            "grep -rh '[[:print:]abc]' .",
            "grep -rE '[abc|def]' .",
            "grep -r '[a-z]\\{0,9\\}' .",
            "grep -rE '(import)+?' .",
        ),
    ],
)
def test_broad_searches_require_approval_when_hardened(command: str) -> None:
    """What does not match, whole files, everything, and what people keep secrets under."""
    assert rule(command) == "command.sensitive_path"
    assert rule(command, "standard") == "command.reading"


@pytest.mark.parametrize(
    "command",
    [
        *("grep -rn foo .", "rg -n --hidden foo", "grep -rn 'class User' src", "rg 'fn \\w+' -g '*.rs'", "rg -l ''"),
        *("grep -r password config/", "git grep -n import", "grep -rnE 'TODO|FIXME' src", "grep -rc '' src"),
        *("grep -rn -B3 -A 12 'def main' .", "grep -rn 错误 .", "rg --files -g '*.sql'", "git grep -l token"),
    ],
)
def test_narrow_search_runs_under_hardened(command: str) -> None:
    """By a pattern with some letters in it, or for names and counts alone."""
    assert rule(command) == "command.reading"


def test_narrow_pattern_requires_a_literal_in_each_alternative() -> None:
    """One that matches every line is enough; what is repeated, optional or a class is certain of nothing."""
    assert all(map(is_narrow, ("foo", "^foo$", "foo|bar", "a.*foo", "x[0-9]+foo", "foo\\(bar\\)", "(get|post) ")))
    assert not any(
        map(is_narrow, ("", ".", "fo", "foo|", "fo?o", "foo\n", "[foo]", "\\w+", "fo{0,9}o", "(foo)*", "f.o"))
    )


@pytest.mark.parametrize(
    "pattern",
    [
        *("[]a-z=_]", "[^]abcd]", "[[:alpha:]abc]", "[abc|def]", "[[a-z]bcd]", "[a\\]bcd]", "[[.a.]bcd]", "[abc"),
        *("\\p{Latin}", "\\x{0041}", "(a*)\\g<100>", "(*MARK:abc)", "(*nla:abcd)", "abc|(*ACCEPT)"),
        *(
            "\\w\\{0,1\\}",
            "[a-z]\\{0,9\\}",
            "(abc)+?",
            "(abc)+*",
            "abc+?",
            "ab+",
            "(?:ab)",
            "\\040a",
            "abc|?",
            "abc\n?",
        ),
        *("(abc|)", "\\(abc\\)\\?", "x{0}ab", "(abc){,3}"),
    ],
)
def test_patterns_that_dialects_read_differently_are_not_narrow(pattern: str) -> None:
    """Of POSIX, Perl and Rust: a class is one character wherever it ends, and what may be absent in one is certain
    of nothing."""
    assert not is_narrow(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        *("a\\[0\\]foo", "[A-Z][a-z]+Error", "def \\w+\\(self", "\\bfoo\\b", "f(*args", "import (os|sys|json)"),
        *("[\\w.-]+@example", "foo[^]]*", "[[:space:]]foo", "TODO|FIXME", "fn main() {", "^class [A-Z]\\w*Test"),
    ],
)
def test_common_search_patterns_are_narrow(pattern: str) -> None:
    """Classes and escapes beside what must be there."""
    assert is_narrow(pattern)


@pytest.mark.parametrize("piece", ["[", "(", "a|", "\\", "a*", "[]", "begin", "private"])
def test_long_search_pattern_is_judged_in_linear_time(piece: str) -> None:
    """As long as a command may be."""
    effort = Effort()
    for _ in range(10):
        rule(f"grep -r '{piece * (4000 // len(piece))}' .")
    assert effort.cpu_s < 2
