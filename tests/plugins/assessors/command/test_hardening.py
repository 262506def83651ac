"""The objections of the hardened profile to commands that are harmless to the machine."""

import pytest
from measuring import Effort

from gateway.plugin.shell.classifier import read_command
from gateway.plugin.shell.objection import Objection
from gateway.plugins.assessors.command.hardening import check_hardened


def hardened(text: str) -> str:
    """The rule that objects; "" where nothing does."""
    script, readings = read_command(text)
    try:
        check_hardened(readings, looping="construct" in script.extras)
    except Objection as objection:
        return objection.rule
    return ""


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("tail -f a", "endless"),
        ("cat", "waits_for_input"),
        ("cat .env", "sensitive_path"),
        ("cd /etc && cat s*", "sensitive_path"),
        ("ls -R /", "large_output"),
        ("seq 9999999999", "large_output"),
        ("grep -r '' .", "sensitive_path"),
        ("if true; then cd /; fi; ls", "sensitive_path"),
        ("cat a | head", ""),
        ("grep -rn foo .", ""),
        ("ls / /tmp", ""),
        ("git log --oneline", ""),
    ],
)
def test_hardened_rule_names_the_objection(text: str, rule: str) -> None:
    """In the audit log."""
    assert hardened(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        f"cd b; cd c; cd d; cat {'a/' * 900}{{{'a,' * 900}}}",
        f"cd {'a/' * 1600}; cd c; cd d; cat {'x ' * 240}",
        f"cd b; cd c; cd d; ls {' '.join(['{' + 'a,' * 90 + '}'] * 15)}",
        f"rg -g '{'a/' * 900}{{{'a,' * 900}}}' foo",
    ],
)
def test_many_paths_are_judged_within_bounded_cpu_time(text: str) -> None:
    """Names of a brace, words and folders multiply, and meanwhile the gateway answers nobody."""
    effort = Effort()
    assert hardened(text) == "sensitive_path"
    assert effort.cpu_s < 0.25


def test_jq_and_awk_programs_in_braces_are_not_read_as_paths() -> None:
    """Of jq and awk."""
    fields = ", ".join(f"field{number}" for number in range(60))
    assert hardened(f"jq '{{{fields}}}' a.json") == ""
    assert hardened(f"awk '{{print {fields}}}' a.txt") == ""
    assert hardened("cd src && cat {a,b,c}.py") == ""
