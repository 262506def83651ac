"""The settings in force as an operator sees them: no secret of any kind is in them."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import load
from gateway.config.redacted_dump import redact_settings
from gateway.config.values.secret import MASK

SECRET = "sk-canary-0123456789"
FILE = """
upstreams: [{name: up, base_url: "https://api.example.com/v1", api_key: CANARY, models: ["a-*"]}]
keys: [{name: ann, sha256: "HASH", scopes: [admin]}]
approvals: {notify: [{webhook: "https://hooks.example.com/CANARY", secret: CANARY-and-longer-than-that}]}
store: "sqlite:///./CANARY.db"
tools:
  execute_sql: {url: "postgres://u:CANARY@db/x"}
  copy: {use: execute_sql, with: {url: "postgres://u:CANARY@db/y", max_rows: 5}}
  mine: {use: somebody.plugin, with: {token: CANARY, size: 3, on: true, deep: [{password: CANARY}, 1.5, null]}}
mcp:
  servers:
    time: {command: uvx, args: [mcp-server-time], env: {TOKEN: CANARY}}
    far: {url: "https://mcp.example.com/CANARY", headers: {Authorization: "Bearer CANARY"}}
prompts: {helper: {text: "${SHHH}"}, plain: {text: Be terse.}}
chains:
  mine: [{use: prompt_enhancer, with: {max_tokens: 77, custom_context: "${SHHH}"}}, {use: agent_loop}, {use: own, with: {key: CANARY, n: 2}}]
"""  # noqa: E501


@pytest.fixture
def shown(tmp_path: Path) -> Any:
    file = tmp_path / "gateway.yaml"
    file.write_text(FILE.replace("CANARY", SECRET).replace("HASH", "ab" * 32))
    loaded = load(file, environ={"SHHH": SECRET}, flags={})
    return json.loads(json.dumps(redact_settings(loaded.settings)))


def test_no_secret_is_shown(shown: Any) -> None:
    """Wherever it stands; nor the hash of a key."""
    assert SECRET not in json.dumps(shown) and "abab" not in json.dumps(shown)
    assert shown["upstreams"][0]["api_key"] == shown["store"] == shown["keys"][0]["sha256"] == MASK
    assert shown["approvals"]["notify"][0]["webhook"] == shown["approvals"]["notify"][0]["secret"] == MASK
    assert shown["mcp"]["servers"]["time"]["env"] == {"TOKEN": MASK}
    assert shown["mcp"]["servers"]["far"]["url"] == MASK
    assert shown["tools"]["execute_sql"]["url"] == MASK
    assert shown["prompts"]["helper"]["text"] == MASK


def test_dump_shows_settings_that_are_not_secret(shown: Any) -> None:
    """Defaults included."""
    upstream = shown["upstreams"][0]
    assert (upstream["name"], upstream["base_url"], upstream["models"]) == ("up", "https://api.example.com/v1", ["a-*"])
    assert shown["listen"] == "127.0.0.1:8080" and shown["workers"] == 1 and shown["admin"] == {"listen": None}
    assert shown["keys"][0]["name"] == "ann" and shown["keys"][0]["scopes"] == ["admin"]
    assert shown["prompts"]["plain"]["text"] == "Be terse."
    assert shown["mcp"]["servers"]["time"]["args"] == ["mcp-server-time"]
    assert [stage["use"] for stage in shown["chains"]["assistant"]][-1] == "agent_loop"
    assert shown["chains"]["assistant"][-1]["with"]["tool_format"] == "json"


def test_texts_of_foreign_plugins_are_masked(shown: Any) -> None:
    """Any of them may be a secret; those of our own plugins have their types."""
    assert shown["tools"]["mine"]["with"] == {
        "token": MASK,
        "size": 3,
        "on": True,
        "deep": [{"password": MASK}, 1.5, None],
    }
    assert shown["tools"]["copy"]["with"] == {"url": MASK, "max_rows": 5}
    assert shown["chains"]["mine"][0]["with"] == {"max_tokens": 77, "custom_context": MASK}
    assert shown["chains"]["mine"][2]["with"] == {"key": MASK, "n": 2}
