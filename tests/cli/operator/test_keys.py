"""`gateway keys`: keys are made, listed, rotated and revoked, on a running gateway and on its store."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_cases import told
from gateways import ended, until_read

from gateway.cli.main import main
from gateway.cli.operator.keys import create_key, list_keys, revoke_keys, rotate_key, show_key
from gateway.cli.operator.remote import Remote, RemoteError
from tests.auth.keyring import ROOT, Keyring, keyring

TERMS = {"name": "ci", "scopes": ["context", "passthrough"]}


def remote(ring: Keyring) -> Remote:
    return Remote(ring.gateway.base_url, ROOT)


async def made(command: Callable[[], Iterator[str]]) -> Any:
    (line,) = await told(command)
    return json.loads(line)


async def test_a_key_is_made_shown_once_and_revoked() -> None:
    """A person reads its text in the first line, and a program in `key`."""
    async with keyring() as ring:
        body = {**TERMS, "networks": ["127.0.0.1"], "metadata": {"team": "co\x1bre"}}
        lines = await told(lambda: create_key(remote(ring), TERMS, as_json=False))
        text = lines[0].split()[1]
        assert lines[0] == f"key         {text}" and await ring.opens(text) == 200
        one = await made(lambda: create_key(remote(ring), {**TERMS, "name": "two"}, as_json=True))
        assert await ring.opens(one["key"]) == 200
        again = await told(lambda: show_key(remote(ring), id=one["id"], as_json=False))
        assert "name        two" in again and one["key"] not in "".join(again)
        assert await told(lambda: revoke_keys(remote(ring), [one["id"]])) == [f"{one['id']}  revoked"]
        assert await ring.opens(one["key"]) == 401
        with pytest.raises(RemoteError, match="metadata"):
            await told(lambda: create_key(remote(ring), {**body, "name": "x"}, as_json=False))


@pytest.mark.parametrize("on_store", [True, False])
async def test_key_revocation_reports_an_older_key_still_valid(on_store: bool, tmp_path: Path) -> None:
    """Until its grace is over: whoever has lost the new key may have lost the old one, too."""
    async with keyring(tmp_path / "g.db") as ring:
        old = await made(lambda: create_key(remote(ring), TERMS, as_json=True))
        new = await made(lambda: rotate_key(remote(ring), old["id"], grace="1h", as_json=True))
        if on_store:
            file = tmp_path / "gateway.yaml"
            file.write_text(f"store: sqlite:///{tmp_path / 'g.db'}\nworkflows: {{folder: none}}\n")
            code, out, _ = await ended("keys", "revoke", new["id"], "--store", "-c", str(file))
            assert code == 0
            lines = out.splitlines()
        else:
            lines = await told(lambda: revoke_keys(remote(ring), [new["id"]]))
        assert lines[0] == f"{new['id']}  revoked"
        assert lines[1].startswith(f"{old['id']}  is still valid until 20") and lines[1].endswith("revoke it as well")
        assert await ring.opens(old["key"]) == 200
        assert await told(lambda: revoke_keys(remote(ring), [old["id"]])) == [f"{old['id']}  revoked"]


async def test_keys_are_listed() -> None:
    """A line each: what they may do, until when, and who made them."""
    async with keyring() as ring:
        one = await made(lambda: create_key(remote(ring), {**TERMS, "expires": "2100-01-01T00:00:00Z"}, as_json=True))
        assert await ring.opens(one["key"]) == 200
        lines = await told(lambda: list_keys(remote(ring), as_json=False))
        assert lines[0] == (
            f"{one['id']}  valid, until 2100-01-01T00:00:00Z  ci ({one['hint']}, by root)  context,passthrough"
        )
        assert lines[1].startswith("root  valid  root (configured)  passthrough,context")
        found = [json.loads(line) for line in await told(lambda: list_keys(remote(ring), as_json=True))]
        assert [each["name"] for each in found] == ["ci", "root"]


async def test_a_key_is_rotated() -> None:
    """With the time that the old one stays."""
    async with keyring() as ring:
        old = await made(lambda: create_key(remote(ring), TERMS, as_json=True))
        new = await made(lambda: rotate_key(remote(ring), old["id"], grace="0", as_json=True))
        assert [await ring.opens(each["key"]) for each in (old, new)] == [401, 200]


async def test_the_first_key_is_made_on_the_store(tmp_path: Path) -> None:
    """Before the gateway runs and while it does; until there is one, nobody gets in."""
    file = tmp_path / "gateway.yaml"
    file.write_text("runtime_keys: {enabled: true}\nstore: sqlite:///./g.db\nworkflows: {folder: none}\n")
    words = ("keys", "create", "root", "--scopes", "admin,context,passthrough", "--tenant", "acme", "--store", "--json")
    code, out, err = await ended(*words, "-c", str(file))
    assert (code, err) == (0, "")
    root = json.loads(out)
    assert (root["tenant"], root["created_by"]) == ("acme", "command line")
    async with keyring(tmp_path / "g.db", keys=[]) as ring:
        assert await ring.opens("anything") == 401
        assert (await ring.ask("GET", "/context/keys", by=root["key"]))[0] == 200
        code, out, _ = await ended("keys", "rotate", root["id"], "--grace", "0", "--store", "--json", "-c", str(file))
        new = json.loads(out)
        await until_read(lambda: ring.opens(root["key"]), lambda status: status == 401)
        assert code == 0 and (await ring.ask("GET", "/context/keys", by=new["key"]))[0] == 200
        code, out, _ = await ended("keys", "revoke", new["id"], "--store", "-c", str(file))
        assert (code, out) == (0, f"{new['id']}  revoked\n")
        await until_read(lambda: ring.opens(new["key"]), lambda status: status == 401)
        code, _, err = await ended("keys", "revoke", new["id"], "--store", "-c", str(file))
        assert code == 1 and new["id"] in err


async def test_keys_create_refuses_store_when_runtime_keys_are_disabled(tmp_path: Path) -> None:
    """The reason is told, and how to change that."""
    file = tmp_path / "gateway.yaml"
    file.write_text("store: sqlite:///./g.db\nworkflows: {folder: none}\n")
    code, out, err = await ended("keys", "create", "x", "--scopes", "admin", "--store", "-c", str(file))
    assert (code, out) == (1, "") and "runtime_keys: {enabled: true}" in err


@pytest.mark.parametrize(
    "words",
    [
        "create x",
        "create x --scopes context --expires soon",
        "create x --scopes context --metadata team",
        "create x --scopes context --tenant acme",
        "create x --scopes context --store --url http://h",
        "rotate key_1 --store --grace soon",
        "revoke",
        "show",
    ],
)
def test_keys_rejects_invalid_arguments_with_usage(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["keys", *words.split()])
    assert exit_.value.code == 2 and "usage: gateway keys" in capsys.readouterr().err


async def test_keys_create_arguments_become_key_terms(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them, through the command line."""
    monkeypatch.setenv("GATEWAY_API_KEY", ROOT)
    async with keyring() as ring:
        words = (
            *("keys", "create", "ci", "--scopes", "context, tools", "--expires", "2100-01-01T00:00:00+01:00"),
            *("--approvals", "reject", "--model", "gpt-4*", "--model", "llama3", "--tool", "web.*", "--upstream", "up"),
            *("--network", "10.0.0.0/8", "--metadata", "team=core", "--json", "--url", ring.gateway.base_url),
        )
        assert await asyncio.to_thread(main, words) == 0
        made = json.loads(capsys.readouterr().out)
    assert {name: made[name] for name in ("scopes", "approvals", "models", "tools", "upstreams", "networks")} == {
        "scopes": ["context", "tools"],
        "approvals": "reject",
        "models": ["gpt-4*", "llama3"],
        "tools": ["web.*"],
        "upstreams": ["up"],
        "networks": ["10.0.0.0/8"],
    }
    assert made["expires"] == "2099-12-31T23:00:00Z" and made["metadata"] == {"team": "core"}
