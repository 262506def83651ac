"""The configurations that may replace the one in use."""

import logging
from pathlib import Path

import pytest

from gateway.config import ConfigError, LoadedConfig, load, merge_configs

KEY = f"{{name: a, sha256: '{'ab' * 32}', scopes: [context], tenant: acme, approvals: reject, tools: [time.*]}}"
TEXT = f"""
keys: [{KEY}]
upstreams: [{{name: up, base_url: "http://up", paths: [/v1/chat]}}]
passthrough: {{paths: [/v1/models]}}
risk: {{trust_llm: never, default: deny}}
approvals: {{mode: reject, chains: {{assistant: reject}}}}
tools: {{http_request: {{hosts: [a.example], requires_approval: true}}, mine: {{use: plugin, untrusted: true}}}}
mcp: {{servers: {{time: {{command: time, enabled: false}}}}, serve: {{tools: ["time.*"]}}}}
"""


def loaded(tmp_path: Path, text: str) -> LoadedConfig:
    place = tmp_path / "gateway.yaml"
    place.write_text(text)
    return load(place, environ={}, flags={})


def reasons(tmp_path: Path, text: str) -> str:
    """Why this text does not replace TEXT; "" if it does."""
    try:
        merge_configs(loaded(tmp_path, text), old=loaded(tmp_path, TEXT))
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("said", "silent", "path"),
    [
        (f"keys: [{KEY}]\n", "", "keys"),
        (f"keys: [{KEY}]\n", "keys: []\n", "keys"),
        (", tenant: acme", "", "keys.a.tenant"),
        (", paths: [/v1/chat]", "", "upstreams.up.paths"),
        ("passthrough: {paths: [/v1/models]}\n", "", "passthrough.paths"),
        ("trust_llm: never, ", "", "risk.trust_llm"),
        ("risk: {trust_llm: never, default: deny}\n", "risk:\n", "risk.default"),
        (", approvals: reject", "", "keys.a.approvals"),
        ("mode: reject, ", "", "approvals.mode"),
        (", chains: {assistant: reject}", "", "approvals.chains"),
        ("hosts: [a.example], ", "", "tools.http_request.hosts"),
        (", requires_approval: true", "", "tools.http_request.requires_approval"),
        (", untrusted: true", "", "tools.mine.untrusted"),
        (", enabled: false", "", "mcp.servers.time.enabled"),
        (", tools: [time.*]", "", "keys.a.tools"),
        ('tools: ["time.*"]', "", "mcp.serve.tools"),
    ],
)
def test_reload_that_silently_drops_a_guard_is_refused(tmp_path: Path, said: str, silent: str, path: str) -> None:
    """Each place is named."""
    assert said in TEXT
    assert f" {path}: " in reasons(tmp_path, TEXT.replace(said, silent))


@pytest.mark.parametrize(
    ("said", "other"),
    [
        ("trust_llm: never", "trust_llm: always"),
        ("default: deny", "default: confirm"),
        ("hosts: [a.example]", "hosts: []"),
        ("http_request: {hosts: [a.example], requires_approval: true}, ", ""),
        ("{servers: {time: {command: time, enabled: false}}", "{servers: {}"),
        ("mode: reject", "mode: turn"),
        ("keys: [", f"keys: [{{name: b, sha256: '{'cd' * 32}', scopes: [admin]}}, "),
    ],
)
def test_reload_accepts_explicit_changes_of_the_configuration(tmp_path: Path, said: str, other: str) -> None:
    """An operator loosens by writing it down; whole tools, servers and keys come and go."""
    assert said in TEXT
    assert reasons(tmp_path, TEXT.replace(said, other)) == ""


@pytest.mark.parametrize("text", ["", "\n\n", "# all gone\n", "null\n", "---\n", "{}\n"])
def test_reload_of_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    """But another that is as empty."""
    assert "the file is empty" in reasons(tmp_path, text)
    merge_configs(loaded(tmp_path, text), old=loaded(tmp_path, text))


def test_reload_of_a_truncated_file_is_refused(tmp_path: Path) -> None:
    """Behind a line and within one; a file with one more line is another file."""
    more = TEXT + "logging: {level: info}\n"
    old = loaded(tmp_path, more)
    for text in (TEXT, more[:-1]):
        with pytest.raises(ConfigError, match="looks cut short"):
            merge_configs(loaded(tmp_path, text), old=old)
    merge_configs(loaded(tmp_path, TEXT + "# no logging\n"), old=old)


def test_reload_keeps_settings_that_need_a_restart_and_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With a line of the log for each; the rest of `metrics` changes."""
    old = loaded(tmp_path, TEXT)
    with caplog.at_level(logging.WARNING):
        new = merge_configs(loaded(tmp_path, TEXT + "listen: 127.0.0.1:1\nmetrics: {enabled: false}\n"), old=old)
    assert (new.settings.listen, new.settings.metrics.enabled) == (old.settings.listen, True)
    assert "'listen' changed" in caplog.text and "'metrics.enabled' changed" in caplog.text


def test_mcp_serve_path_changes_only_after_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The other settings of `mcp.serve` may change at once."""
    text = 'mcp: {serve: {path: /a, wait: 1s}}\nlisten: "127.0.0.1:1"\n'
    old = loaded(tmp_path, text)
    with caplog.at_level(logging.WARNING):
        new = merge_configs(loaded(tmp_path, text.replace("/a", "/b").replace("1s", "2s")), old=old).settings.mcp.serve
        closed = merge_configs(loaded(tmp_path, 'mcp: {}\nlisten: "127.0.0.1:1"\n'), old=old).settings.mcp.serve
    assert new is not None and (new.path, new.wait) == ("/a", 2.0)
    assert closed is not None and caplog.text.count("'mcp.serve' changed") == 2
