"""Texts that do not show themselves."""

import copy
import json
import logging
import pickle

import pytest

from gateway.config import Secret, Settings, iterate_secret_texts
from gateway.config.values.secret import MaskedText, mask

CANARY = "sk-canary-0123456789"


def test_a_secret_shows_nothing_of_itself(caplog: pytest.LogCaptureFixture) -> None:
    """repr, str, format, % and a log line are `***`; only `reveal` tells."""
    secret = Secret(CANARY)
    logging.getLogger("test").warning("%s %r", secret, [secret])
    assert caplog.messages == ["*** [***]"]
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r:>10}", repr({"k": (secret,)})]
    assert CANARY not in "".join(shown)
    assert secret.reveal() == CANARY


def test_secrets_are_equal_by_content() -> None:
    """A reload must see whether a key changed; a secret is not equal to its text."""
    assert Secret("ä") == Secret("ä")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
    assert copy.deepcopy(Secret("a")) == Secret("a") == pickle.loads(pickle.dumps(Secret("a")))


def test_masked_text_equals_its_text_but_hides_in_repr() -> None:
    """It works as a str, but neither its repr nor a masked copy shows it."""
    hidden = MaskedText(CANARY)
    assert hidden == CANARY and str(hidden) == CANARY
    tree = {"a": [hidden, "plain", 1], "b": {"c": hidden}}
    assert CANARY not in repr(tree)
    assert mask(tree) == {"a": ["***", "plain", 1], "b": {"c": "***"}}


def test_redactable_finds_every_secret_worth_replacing() -> None:
    """All secrets of a configuration, wherever they stand, except words so short that replacing them garbles a log."""
    settings = Settings.model_validate(
        {
            "upstreams": [{"name": "a", "base_url": "http://a", "api_key": CANARY + "1"}],
            "approvals": {"notify": [{"webhook": "https://hooks.example.com/" + CANARY, "secret": CANARY + "2"}]},
            "mcp": {"servers": {"m": {"command": "m", "env": {"K": CANARY + "3", "DEBUG": "1"}}}},
            "store": "postgresql://u:" + CANARY + "@db/x",
        }
    )
    found = set(iterate_secret_texts(settings))
    assert {CANARY + "1", CANARY + "2", CANARY + "3", "postgresql://u:" + CANARY + "@db/x"} <= found
    assert "1" not in found


def test_settings_never_print_their_secrets() -> None:
    """repr, str, model_dump and model_dump_json of a whole configuration hold no secret."""
    settings = Settings.model_validate(
        {
            "upstreams": [{"name": "a", "base_url": "http://a", "api_key": CANARY}],
            "mcp": {"servers": {"m": {"url": "https://m/" + CANARY, "headers": {"Authorization": CANARY}}}},
            "tools": {"execute_sql": {"url": "postgresql://u:" + CANARY + "@db/x"}},
        }
    )
    dumped = settings.model_dump_json(by_alias=True)
    assert CANARY not in repr(settings) + str(settings) + repr(settings.model_dump()) + dumped
    assert json.loads(dumped)["upstreams"][0]["api_key"] == "***"
