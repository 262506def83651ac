"""The rule for names that people decide by, at every door through which one comes."""

import json
from pathlib import Path

import pytest
from auth.keyring import ROOT, Keyring, keyring
from config.folder import Folder

from gateway.text.names import RESERVED_FOR_CALLERS, find_imitated_name, find_unfit_reason

HIDDEN = "has a character that does not show"
#: Each with what is said of it: marks of direction, joiners, blanks; letters of scripts that look like Latin ones.
BAD = {
    "adm\u200bin": HIDDEN,
    "\u202enimda": HIDDEN,
    "a\u2066b": HIDDEN,
    "ann\u00ada": HIDDEN,
    "\u0430dmin": "has letters of several scripts that look alike: '\\u0430dmin'",
    "ci-r\u03bfot": "has letters of several scripts that look alike: 'r\\u03bfot'",
    "\u0441\u03bf\u0440\u0430": "has letters of several scripts that look alike",
    "\u0440\u0430\u0443": "looks like 'pay', written in letters of another script",
    "team \u0410\u0421": "looks like 'ac', written in letters of another script",
}
GOOD = (
    *("ann", "Ann Lee (ci)", "Zo\xeb", "\u0410\u043d\u043d\u0430", "ci-\u0430\u043d\u043d\u0430"),
    *("\u674e\u96f7", "\u05d3\u05e0\u05d4"),
)
DECLARED = "{name: %s, sha256: %s, scopes: [context]%s}"


def key(name: str, tenant: str | None = None, *, digit: str = "a") -> str:
    return DECLARED % (json.dumps(name), f"'{digit * 64}'", "" if tenant is None else f", tenant: {json.dumps(tenant)}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


def test_single_script_names_are_accepted() -> None:
    """Of any script; several words may be of several scripts."""
    assert [find_unfit_reason(name) for name in GOOD] == [None] * len(GOOD)


@pytest.mark.parametrize(
    ("name", "other"),
    [("Admin", "admin"), ("r00t", "root"), ("ce\u0301line", "celine"), ("modern", "modem"), ("al1ce", "alice")],
)
def test_lookalike_name_is_recognised_as_an_imitation(name: str, other: str) -> None:
    """What joins the words is a part of how a name looks."""
    assert find_imitated_name(name, ["x", other]) == other
    assert find_imitated_name(name, [name]) is None and find_imitated_name("ci-1", ["ci_1", "ci.1", "ci 1"]) is None


@pytest.mark.parametrize(("name", "reason"), BAD.items())
def test_deceptive_name_in_the_configuration_is_refused(folder: Folder, name: str, reason: str) -> None:
    """Of a key, a tenant in each place, a service, a prompt."""
    texts = {
        "keys[0].name": f"keys:\n  - {key(name, 't')}\n",
        "keys[0].tenant": f"keys:\n  - {key('ann', name)}\n",
        "limits.tenants": f"limits:\n  tenants:\n    {json.dumps(name)}: {{requests_per_minute: 5}}\n",
        "mcp.servers": f"mcp:\n  servers:\n    {json.dumps(name)}: {{command: x}}\n",
    }
    for place, text in texts.items():
        (problem,) = folder.problems(text)
        assert place in problem and reason in problem and "choose another" in problem
    (problem,) = folder.problems(f"prompts:\n  {json.dumps(name)}: {{text: x}}\n")
    assert "expected 1 to 64 letters, digits" in problem


@pytest.mark.parametrize("name", [*RESERVED_FOR_CALLERS, "Local", "0ther", "L\xf3cal"])
def test_configured_key_with_reserved_name_is_refused(folder: Folder, name: str) -> None:
    """In any spelling. A tenant may: `tenant: local` keeps what was made while there were no keys."""
    (problem,) = folder.problems(f"keys:\n  - {key(name)}\n")
    assert "keys[0].name: the name " in problem and "the gateway's own in lists" in problem
    folder.load(f"keys:\n  - {key('ann', name)}\n")


def test_configured_name_that_looks_like_another_is_refused(folder: Folder) -> None:
    """Keys and tenants, each among themselves, with the place of the other one."""
    text = f"keys:\n  - {key('ann', 'acme')}\n  - {key('Ann', 'acme', digit='b')}\n"
    (problem,) = folder.problems(text)
    assert "keys[1].name: looks like the name of the key at " in problem and ":2:12" in problem
    text = f"keys:\n  - {key('ann', 'acme')}\n  - {key('ACME', digit='b')}\n"
    (problem,) = folder.problems(text)
    assert "keys[1].name: looks like the name of the tenant at " in problem
    limits = "limits:\n  tenants:\n    acrne: {requests_per_minute: 5}\n"
    (problem,) = folder.problems(f"keys:\n  - {key('ann', 'acme')}\n{limits}")
    assert "limits.tenants.acrne: looks like the name of the tenant at " in problem


async def refused(ring: Keyring, name: str, **terms: str) -> tuple[str, str]:
    """Ask for a key, and return the field at fault and what is said of it."""
    body = {"name": name, "scopes": ["context"], **terms}
    status, told = await ring.ask("POST", "/context/keys", body, by=ROOT)
    assert (status, told["error"]["code"]) == (400, "invalid_field"), told
    return told["error"]["param"], told["error"]["message"]


async def test_deceptive_name_of_a_new_key_is_refused() -> None:
    """By the same rule, and in the same words."""
    async with keyring() as ring:
        for name, reason in BAD.items():
            field, message = await refused(ring, name)
            assert field == "name" and reason in message and "choose another one" in message
        for name in RESERVED_FOR_CALLERS:
            field, message = await refused(ring, name)
            assert field == "name" and "the gateway's own" in message
        for name in GOOD:
            assert (await ring.made(name))["name"] == name


async def test_runtime_key_that_looks_like_another_is_refused() -> None:
    """Neither like one of the configuration nor like one that is valid; the other name is not told."""
    async with keyring() as ring:
        made = await ring.made("deploy-1")
        for name in ("Root", "r00t", "deploy-l", "D\xe9ploy-1"):
            field, message = await refused(ring, name)
            assert field == "name" and "looks like that of another key" in message
            assert "'root'" not in message and "'deploy-1'" not in message
        await ring.ask("DELETE", f"/context/keys/{made['id']}", by=ROOT)
        await ring.made("deploy-l")


async def test_prompt_id_with_non_ascii_lookalike_is_refused() -> None:
    """A look-alike is refused."""
    async with keyring() as ring:
        for name in ("def\u0430ult", "a\u200bb", "\u202ea"):
            status, told = await ring.ask("PUT", f"/v1/system-prompts/{name}", {"text": "x"}, by=ROOT)
            assert status == 400 and "expected 1 to 64 letters" in told["error"]["message"], told
