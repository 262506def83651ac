"""The file operations that run by themselves, under each profile; every line of the case file holds."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.contracts.storage.store import Json
from gateway.plugins.assessors.file import PLUGIN, Config, FileAssessor, Profile

CASES = [json.loads(line) for line in (Path(__file__).parents[2] / "data" / "file.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("profile", ["literal", "standard", "hardened"])
def test_file_corpus_gets_the_expected_verdicts(profile: Profile) -> None:
    """core holds under all profiles; what hardening marks asks under `hardened` alone."""
    judge = FileAssessor(profile)
    judged = [(case, judge.assess(case["arguments"])) for case in CASES if not case.get("ambiguous")]
    assert len(judged) > 75
    assert [(case, verdict) for case, verdict in judged if verdict.decision != expected(case, profile)] == []
    for case, verdict in judged:
        assert verdict.basis == ("whitelist" if verdict.decision == "auto" else "default"), case
        assert verdict.rule.startswith("file.") and verdict.reason, case


def expected(case: Json, profile: Profile) -> str:
    return "auto" if case["tier"] == "hardening" and profile != "hardened" else str(case["expect"])


def test_file_operation_whitelist_fallback() -> None:
    """Requirement: read, list and exists run, write asks."""
    decisions = {
        operation: FileAssessor("standard").assess({"operation": operation, "path": "a"}).decision
        for operation in ("read", "list", "exists", "write", "append", "")
    }
    assert decisions == dict.fromkeys(("read", "list", "exists"), "auto") | dict.fromkeys(
        ("write", "append", ""), "confirm"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"operation": "Read", "path": "a"},
        {"operation": " read", "path": "a"},
        {"operation": "read\n", "path": "a"},
        {"operation": "read\u200b", "path": "a"},
        {"operation": None, "path": "a"},
        {"operation": "read", "path": None},
        {"operation": "read", "path": 1},
        {"operation": "exists"},
        {"operation": "list", "path": ["."]},
        {"operation": "list", "path": False},
        {"operation": "read", "path": "a\nb"},
        {"operation": "read", "path": "a\u202etxt.exe"},
        {"operation": "read", "path": "\ud800"},
        {"operation": "read", "path": "a" * 5000},
        {"operation": "read", "path": "a", "destination": "b"},
        {"operation": "read", "path": "a", "mode": "w"},
        {"operation": "list", "path": ".", "recursive": {"delete": True}},
        {"operation": "list", "path": ".", "then": "delete"},
    ],
    ids=repr,
)
def test_inexact_reading_operation_requires_approval(arguments: Json) -> None:
    """Another spelling, a wrong type, an unseen character or an argument nobody knows asks."""
    assert FileAssessor("standard").assess(arguments).decision == "confirm"


@pytest.mark.parametrize(
    "path",
    [
        "~/.aws/credentials", "a/.ENV", "deploy/server.key", "tls/cert.pem", "/root", "/root/x", "/var/run/secrets/x",
        "/proc/1/environ", "/PROC/self/../1/mem", "//etc/shadow", "/etc//shadow", "a\\..\\.env",
        "C:\\Users\\me\\.ssh\\id_rsa",
        "//server/share", "smb://server/share", "/dev/mem", "x/../../../dev/sda", "/home/me/.kube/config",
        ".git-credentials", "/etc/ssh/ssh_host_rsa_key", ".bash_history", "secrets.yaml",
    ],
)  # fmt: skip
def test_hardened_profile_detects_secret_paths_in_every_spelling(path: str) -> None:
    """Dot segments, double slashes, either separator and either case are seen through; existence is no secret."""
    assert FileAssessor("standard").assess({"operation": "read", "path": path}).decision == "auto"
    assert FileAssessor("hardened").assess({"operation": "read", "path": path}).decision == "confirm"
    assert FileAssessor("hardened").assess({"operation": "exists", "path": path}).decision == "auto"


@pytest.mark.parametrize(
    "path",
    [".env.example", "id_rsa.pub", "src/keys.py", "/proc/meminfo", "/dev/null", "shadow/x.css", "../b.txt", "D:/a"],
)
def test_ordinary_file_names_are_read_under_hardened(path: str) -> None:
    """Names that only resemble secrets are read."""
    assert FileAssessor("hardened").assess({"operation": "read", "path": path}).decision == "auto"


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text(), max_size=2)


@settings(max_examples=300)
@given(
    st.dictionaries(st.sampled_from(["operation", "path", "content", "recursive"]) | st.text(), VALUES, max_size=4),
    st.sampled_from(["read", "list", "exists", "write", None]),
)
def test_file_assessor_returns_a_verdict_for_any_object(arguments: Json, operation: str | None) -> None:
    """Whatever the model sends, there is a verdict."""
    if operation:
        arguments["operation"] = operation
    for profile in ("literal", "standard", "hardened"):
        assert FileAssessor(profile).assess(arguments).decision in ("auto", "confirm")


def test_file_assessor_builds_with_a_known_profile_only() -> None:
    """`standard` is the default; an unknown profile is refused."""
    call = {"operation": "read", "path": ".env"}
    assert PLUGIN.build(Config(), None).assess(call).decision == "auto"  # type: ignore[arg-type]
    assert PLUGIN.build(Config(profile="hardened"), None).assess(call).decision == "confirm"  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        Config(profile="lax")  # type: ignore[arg-type]
