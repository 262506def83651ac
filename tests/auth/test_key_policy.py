"""The terms of a key: through the store and back, as a caller, and beside those of the key that makes it."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from gateway.auth.key_policy import (
    build_caller,
    build_key,
    find_too_wide_field,
    parse_stored_terms,
    parse_terms,
    serialize_terms,
)
from gateway.config.schema.keys import KeyTerms
from gateway.contracts.caller import UNBOUNDED, Caller
from gateway.contracts.errors import GatewayError
from tests.plugins.stores.contract_keys import key

WHOLE = {
    "name": "ci",
    "tenant": "acme",
    "scopes": ["context", "tools"],
    "approvals": "hold",
    "models": ["gpt-4*"],
    "tools": ["web.*"],
    "upstreams": ["up"],
    "networks": ["10.0.0.0/8", "::1/128"],
    "metadata": {"team": "core"},
}


def test_key_terms_round_trip_through_the_store() -> None:
    """With their end, which has a column of its own; what has its default is not stored."""
    terms = parse_terms({**WHOLE, "expires": "2100-01-01T00:00:00.5Z"})
    assert terms.expires is not None
    stored = key("ci", terms=serialize_terms(terms), expires_s=terms.expires.timestamp())
    assert parse_stored_terms(stored) == terms and build_caller(terms) == build_key(stored).caller
    small = KeyTerms.model_validate({"name": "ci", "scopes": ["context"]})
    assert serialize_terms(small) == '{"name":"ci","scopes":["context"]}'


def test_built_key_takes_name_and_tenant_from_the_columns() -> None:
    """By which the key is found."""
    stored = replace(key("ci", terms=serialize_terms(parse_terms(WHOLE))), name="renamed", tenant="other")
    assert (build_key(stored).caller.name, build_key(stored).caller.tenant) == ("renamed", "other")


@pytest.mark.parametrize(
    "terms", ["{}", "no", '{"name":"ci","scopes":["from the future"]}', '{"name":"ci","scopes":["context"],"x":1}']
)
def test_unreadable_stored_key_terms_are_refused(terms: str) -> None:
    """Terms that cannot be read are refused."""
    with pytest.raises(ValidationError):
        build_key(key("ci", terms=terms))


def test_unbounded_key_can_create_any_key_of_its_tenant() -> None:
    """With the scopes that it has."""
    maker = Caller("root", "acme", frozenset(("admin", "context", "tools")))
    caller = build_caller(parse_terms(WHOLE))
    assert find_too_wide_field(caller, maker=maker) is None
    assert find_too_wide_field(replace(caller, bounds=UNBOUNDED), maker=maker) is None
    found = find_too_wide_field(replace(caller, scopes=frozenset(("approve",))), maker=maker)
    assert found is not None and found.field == "scopes" and "'approve'" in found.message


@pytest.mark.parametrize(
    ("name", "plain"),
    [(" ci", "ci"), ("ci ", "ci"), ("\uff43i", "ci"), ("ci\u00a0", "ci"), ("\ufb01x", "fix"), ("\u212bke", "\xc5ke")],
)
def test_key_name_or_tenant_in_another_form_is_refused(name: str, plain: str) -> None:
    """The form that is taken is said."""
    for field in ("name", "tenant"):
        with pytest.raises(GatewayError) as caught:
            parse_terms({**WHOLE, field: name})
        assert (caught.value.code, caught.value.param) == ("invalid_field", field)
        assert f"the plain form {plain!r}" in caught.value.message
        assert getattr(parse_terms({**WHOLE, field: plain}), field) == plain
