"""The settings of a service: as strict as the configuration, kept whole, shown without secrets."""

import pytest

from gateway.config.schema.mcp import McpServer
from gateway.contracts.storage.store import Json
from gateway.mcp.registration import (
    SettingsError,
    build_options,
    check_service_name,
    mask_settings,
    parse_settings,
    restore_stored_secrets,
)

SECRET = "sk-canary-12345"
STDIO: Json = {
    "command": "uvx",
    "args": ["mcp-server-time"],
    "env": {"KEY": SECRET, "EMPTY": ""},
    "cwd": "/srv",
    "trigger_keywords": ["几点"],
    "timeout": "5s",
}
OAUTH: Json = {"issuer": "https://id.example", "client_id": "gw", "client_secret": SECRET}
HTTP: Json = {
    "url": f"https://mcp.example:8443/{SECRET}?k=v",
    "headers": {"Authorization": f"Bearer {SECRET}"},
    "oauth": OAUTH,
}


@pytest.mark.parametrize(
    ("settings", "param", "message", "unknown"),
    [
        ({}, "command", "expected either command or url", False),
        ({"command": "x", "url": "http://x"}, "command", "expected either command or url", False),
        ({"comand": "x"}, "comand", "there is no such field; did you mean 'command'?", True),
        ({"command": "x", "zzz": 1}, "zzz", "there is no such field", True),
        ({"command": 5}, "command", "expected text, found a number: put it in quotes", False),
        ({"command": "x", "args": "y"}, "args", "expected a list", False),
        ({"command": "x", "env": []}, "env", "expected an object", False),
        ({"command": "x", "env": {"A": 1}}, "env.A", "expected text, found a number: put it in quotes", False),
        ({"command": "x", "env": {"A=B": "c"}}, "env.A=B", "expected the name of an environment variable", False),
        ({"command": "x", "timeout": "soon"}, "timeout", "expected a duration such as 500ms, 10s, 5m or 24h", False),
        ({"command": "x", "cwd": "here"}, "cwd", "expected an absolute path", False),
        ({"url": "ftp://x"}, "url", "expected a URL that begins with http:// or https://", False),
        ({"url_file": "/run/url"}, "url_file", "send 'url'", False),
        ({"command_file": "/run/x"}, "command_file", "send 'command'", False),
        ({"url": "http://x", "headers": {"A_file": "/run/x"}}, "headers.A_file", "send 'A'", False),
        ({"url": "http://x", "oauth": {**OAUTH, "client_secret_file": "x"}}, "oauth.client_secret_file", "send", False),
        ({"url": "http://x", "oauth": {}}, "oauth.issuer", "field required", False),
        ({"url": "http://x", "oauth": {**OAUTH, "x": 1}}, "oauth.x", "there is no such field", True),
    ],
)
def test_invalid_settings_are_refused_with_the_parameter(
    settings: Json, param: str, message: str, unknown: bool
) -> None:
    """The text names what is wrong in the words of the configuration, `param` where."""
    with pytest.raises(SettingsError) as caught:
        parse_settings(settings)
    assert (caught.value.param, caught.value.unknown) == (param, unknown) and message in str(caught.value)


def test_settings_errors_repeat_no_values() -> None:
    """A value may be a secret."""
    for settings in ({**HTTP, "headers": {"A": f"{SECRET}\n"}}, {"url": f"ftp://{SECRET}"}, {"command": [SECRET]}):
        with pytest.raises(SettingsError) as caught:
            parse_settings(settings)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 129, 5, None])
def test_multiline_service_names_are_refused(name: object) -> None:
    """Any other text is one."""
    assert check_service_name("My Server 1.0/ß") == "My Server 1.0/ß"
    with pytest.raises(SettingsError) as caught:
        check_service_name(name)
    assert caught.value.param == "name"


def test_plugin_options_contain_plain_values() -> None:
    """Secrets revealed, times as seconds, and nothing that was not said."""
    options = build_options(parse_settings(STDIO))
    assert {name: value for name, value in options.items() if name in STDIO} == {**STDIO, "timeout": 5.0}
    assert not {"url", "description", "oauth", "enabled"} & options.keys()
    secret_file = {**OAUTH, "client_secret_file": "/run/secret"}
    options = build_options(McpServer.model_validate({**HTTP, "url_file": "/run/url", "oauth": secret_file}))
    assert {name: options[name] for name in HTTP} == HTTP and "url_file" not in options


def test_secrets_are_not_shown() -> None:
    """Neither those of the environment nor those of headers; of a URL where it leads to."""
    for settings in (STDIO, HTTP):
        assert SECRET not in repr(mask_settings(parse_settings(settings)))
    assert mask_settings(parse_settings(STDIO))["env"] == {"KEY": "***", "EMPTY": "***"}
    assert mask_settings(parse_settings(HTTP))["url"] == "https://mcp.example:8443/***"
    assert mask_settings(parse_settings({"url": "http://127.0.0.1:5/"}))["url"] == "http://127.0.0.1:5/"


def test_masked_settings_are_completed_from_the_stored_secrets() -> None:
    """Masked values stand for those that are kept; a new one takes their place."""
    for settings in (STDIO, HTTP):
        assert parse_settings(
            restore_stored_secrets(mask_settings(parse_settings(settings)), kept=settings)
        ) == parse_settings(settings)
    changed = {"command": "y", "env": {"KEY": "***", "OTHER": "new"}}
    assert restore_stored_secrets(changed, kept=STDIO) == {"command": "y", "env": {"KEY": SECRET, "OTHER": "new"}}
    assert restore_stored_secrets({"command": "y", "env": "***"}, kept=STDIO)["env"] == "***"
    assert restore_stored_secrets(STDIO, kept=None) == STDIO


@pytest.mark.parametrize("kept", [None, HTTP, {"newer": 1, "env": {"KEY": "x"}, "url": "https://h/x"}])
@pytest.mark.parametrize(
    ("settings", "param"),
    [({"command": "x", "env": {"KEY": "***"}}, "env.KEY"), ({"url": "https://h/***"}, "url")],
)
def test_mask_without_a_stored_secret_is_refused(settings: Json, param: str, kept: Json | None) -> None:
    """It would be taken for the secret."""
    with pytest.raises(SettingsError, match="send the value") as caught:
        restore_stored_secrets(settings, kept=kept)
    assert caught.value.param == param
