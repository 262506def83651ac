"""The objections of the hardened profile to commands that are harmless to the machine."""

import pytest

from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.reading import read_command
from gateway.plugins.assessors.command.hardening import harden


def hardened(text: str) -> str:
    """The rule that objects; "" where nothing does."""
    script, readings = read_command(text)
    try:
        harden(readings, looping="construct" in script.extras)
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
def test_the_rule_says_why(text: str, rule: str) -> None:
    """In the audit log."""
    assert hardened(text) == rule
