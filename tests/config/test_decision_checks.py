"""The rules about who decides on calls: what cannot hold is refused, and what may not be meant is a warning."""

import pytest
from config.folder import Folder

from gateway.config.decision_checks import list_decision_warnings

URL = "public_url: https://gateway.example.com\n"


def keys(**scopes: str) -> str:
    entries = (
        f"{{name: '{name}', sha256: '{i:064x}', scopes: [{allowed}], tenant: team}}"
        for i, (name, allowed) in enumerate(scopes.items())
    )
    return f"keys: [{', '.join(entries)}]\n"


BOTH = keys(agent="context, approve", anna="approve")
LINKS = "notify: [{webhook: 'https://hooks.example.com/x', links: {as: oncall}}]"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("approvals: {self: refuse}", "approvals.self: without keys all clients are one caller"),
        ("approvals: {require: [{approvals: 2}]}", "approvals.require: without keys all clients are one caller"),
        (BOTH + "approvals: {require: [{approvals: 1}]}", "approvals.require[0].approvals: must be between 2 and 9"),
        (BOTH + "approvals: {require: [{approvals: 2, risk: [huge]}]}", "expected one of low, medium, high"),
        (BOTH + "approvals: {require: [{tools: [a]}]}", "approvals.require[0].approvals"),
        (BOTH + f"approvals: {{{LINKS}}}", "approvals.notify[0].links: needs public_url"),
        (BOTH + URL + f"console: {{enabled: false}}\napprovals: {{{LINKS}}}", "links: needs the console, which is off"),
        (BOTH + URL + f"approvals: {{{LINKS.replace('oncall', 'a b')}}}", "approvals.notify[0].links.as"),
        (BOTH.replace("'anna'", "'link:anna'"), "keys[1].name: links to approvals have such names"),
    ],
)
def test_invalid_decision_settings_are_reported(folder: Folder, text: str, problem: str) -> None:
    """With its place and the way out."""
    assert problem in folder.problem(text)


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (keys(agent="context", anna="approve"), []),
        (BOTH, ["'context' and 'approve' (agent): such a key may approve its own calls"]),
        (BOTH + "approvals: {self: refuse}", ["(agent): such a key may approve no call of its own"]),
        (
            keys(agent="context, approve") + "approvals: {self: refuse}",
            ["(agent)", "no other key of the tenant 'team' has the scope 'approve', so no call of 'agent' can be"],
        ),
        (keys(agent="context, approve") + URL + f"approvals: {{self: refuse, {LINKS}}}", ["(agent)"]),
        (
            keys(agent="context", anna="approve") + "approvals: {require: [{approvals: 2}]}",
            ["approvals.require asks for 2 keys, and 1 of the tenant 'team' can approve calls of 'agent'"],
        ),
        (keys(agent="context", anna="approve", ben="approve") + "approvals: {require: [{approvals: 2}]}", []),
        (keys(agent="tools") + "approvals: {self: refuse}\nruntime_keys: {enabled: true}", []),
    ],
)
def test_questionable_decision_settings_warn(folder: Folder, text: str, warnings: list[str]) -> None:
    found = list(list_decision_warnings(folder.load(text).settings))
    assert len(found) == len(warnings), found
    assert all(warning in one for warning, one in zip(warnings, found, strict=True))
