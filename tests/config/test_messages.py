"""Findings in the words of a configuration file."""

import pytest
from config.folder import Folder

from gateway.config.messages import suggest_nearest


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("listn: a", "1:1 listn: unknown key 'listn'; did you mean 'listen'?"),
        ("mcp: {mcpServers: {}}", "1:7 mcp.mcpServers: unknown key 'mcpServers'; did you mean 'servers'?"),
        ("metrics: {port: 1}", "1:11 metrics.port: unknown key 'port'; known here: enabled"),
        (
            "mcpServers: {}",
            "1:1 mcpServers: unknown key 'mcpServers': write its servers under 'mcp', as 'servers'; see docs/mcp.md",
        ),
        (
            "models: {a: [b]}",
            "1:13 models.a: expected a section (lines of key: value), found a list: write {use: [NAME]}",
        ),
        ("zzz: 1", "1:1 zzz: unknown key 'zzz'"),
        ("upstreams: [{base_url: 'http://a'}]", "1:13 upstreams[0].name: this key is required"),
        ("approvals: {mode: hodl}", "expected one of turn, hold, reject; did you mean 'hold'?"),
        ("approvals: {mode: auto}", "1:19 approvals.mode: 'auto' is gone: write turn, the default, and a stream ends"),
        ("approvals: {chains: {assistant: auto}}", "expected one of turn, hold, reject"),
        ("approvals: {mode: [auto]}", "expected one of turn, hold, reject"),
        ("logging: {level: 7}", "1:18 logging.level: expected one of debug, info, warning, error"),
        ("keys: [{name: a, sha256: '" + "0" * 64 + "', scopes: [rooot]}]", "expected one of passthrough, context,"),
        ("limits: 5", "1:9 limits: expected a section (lines of key: value), found a number"),
        ("limits: []", "1:9 limits: expected a section (lines of key: value), found a list"),
        ("upstreams: {}", "1:12 upstreams: expected a list, found a section"),
        ("upstreams: [x]", "1:13 upstreams[0]: expected a section (lines of key: value), found text"),
        ("chains: []", "1:9 chains: expected a section (lines of key: value), found a list"),
        ("chains: {a: x}", "1:13 chains.a: expected a list, found text"),
        ("chains: {a: [{use: x, with: 1}]}", "1:29 chains.a[0].with: expected a section (lines of key: value)"),
        ("prompts: {a b: {text: x}}", "1:11 prompts['a b']: expected 1 to 64 letters"),
        ("workers: 2.5", "1:10 workers: expected a whole number, found a number"),
        ("store: 5", "1:8 store: expected text, found a number: put it in quotes"),
        ("tools: {x: 1}", "1:12 tools.x: expected a section"),
        ("5", "1:1: expected a section (lines of key: value)"),
        ("- a", "1:1: expected a section (lines of key: value)"),
        ("tools: {x: {url: a}}", "known here: requires_approval, untrusted, use, with"),
    ],
)
def test_configuration_problem_reports_place_path_and_expected_value(folder: Folder, text: str, problem: str) -> None:
    """Place, path, and what to write instead."""
    found = folder.problem(text)
    assert found.startswith("gateway.yaml:1:") and problem in found


def test_no_finding_shows_a_value(folder: Folder) -> None:
    """A secret in the wrong place is still a secret."""
    lines = ["listen", "workers", "upstreams", "limits", "public_url", "store", "canry"]
    nested = ["context: {canary: canary-7}", "logging: {level: canary-7}", "metrics: {enabled: canary-7}"]
    text = "\n".join([f"{line}: canary-7" for line in lines] + nested)
    for problem in folder.problems(text):
        assert "canary-7" not in problem


def test_a_flood_of_findings_is_cut(folder: Folder) -> None:
    """The first ones, and how many more there are."""
    problems = folder.problems("\n".join(f"key{i}: 1" for i in range(2000)))
    assert len(problems) == 501
    assert problems[0].startswith("gateway.yaml:1:1 key0")
    assert problems[-1] == "...: 1500 more problems of this kind"


def test_nearest_word_is_suggested_only_when_similar() -> None:
    """In any case of letters."""
    assert suggest_nearest("LISTEN", ["listen"]) == "; did you mean 'listen'?"
    assert suggest_nearest("xyz", ["listen"]) == suggest_nearest("a", []) == ""
