"""A key as its operator sees it."""

from dataclasses import replace

from gateway.auth.key_policy import parse_terms, serialize_terms
from gateway.auth.key_view import build_configured_key_view, build_key_view, build_new_key_view
from gateway.config.schema.keys import KeySettings
from gateway.contracts.views import dump_view
from tests.auth.test_key_policy import WHOLE
from tests.plugins.stores.contract_keys import key

STORED = key("ci", terms=serialize_terms(parse_terms(WHOLE)), expires_s=20.0)


def test_key_view_has_its_state_and_no_hash() -> None:
    assert [build_key_view(STORED, now_s=now_s).state for now_s in (19.0, 20.0)] == ["valid", "expired"]
    view = build_key_view(replace(STORED, revoked_s=12.0, revoked_by="root"), now_s=30.0)
    assert (view.state, view.expires, view.hint) == ("revoked", "1970-01-01T00:00:20Z", "sk-...c0de")
    assert STORED.sha256 not in str(view)


def test_new_key_view_ends_with_the_text_of_the_key() -> None:
    """All else is as it is shown later."""
    view = dump_view(build_new_key_view(STORED, "sk-text", now_s=1.0))
    assert [*view.items()] == [*dump_view(build_key_view(STORED, now_s=1.0)).items(), ("key", "sk-text")]


def test_view_of_a_configured_key_has_terms_and_state_only() -> None:
    """Its name is its id, and the facts of a making that the gateway does not know are null."""
    settings = KeySettings.model_validate({**WHOLE, "sha256": "a" * 64, "expires": "1970-01-01T00:00:20Z"})
    assert [build_configured_key_view(settings, now_s=now_s).state for now_s in (19.0, 20.0)] == ["valid", "expired"]
    view = dump_view(build_configured_key_view(settings, now_s=1.0))
    assert {name: view[name] for name in WHOLE} == WHOLE
    assert (view["id"], view["origin"], view["hint"], view["used_at"]) == ("ci", "configuration", None, None)
    assert settings.sha256 not in str(view)
