"""The sections about requests and upstreams."""

import pytest
from pydantic import ValidationError

from gateway.config.schema.http import Key, Limits, Passthrough, Timeouts, Tls, Upstream


def test_the_defaults_are_those_of_the_contract() -> None:
    """Seconds and bytes."""
    assert Timeouts().model_dump() == {"connect": 5.0, "first_byte": 600.0, "idle": 300.0}
    assert Limits().model_dump() == {
        "head": 32768,
        "headers": 256,
        "context_body": 33554432,
        "context_values": 50000,
        "connections": 10000,
        "concurrent": None,
        "head_timeout": 10.0,
        "body_idle": 60.0,
        "write": 60.0,
        "keepalive": 75.0,
        "drain": 30.0,
    }
    assert Passthrough().paths == ("/v1/",)
    assert Tls().model_dump() == {
        "verify": True,
        "ca_file": None,
        "cert_file": None,
        "key_file": None,
        "server_name": None,
    }


def test_an_upstream_needs_a_name_and_a_place() -> None:
    """All else has a default: no key of ours, all models, the general paths."""
    upstream = Upstream.model_validate({"name": "a", "base_url": "http://a"})
    assert (upstream.api_key, upstream.auth_header, upstream.models, upstream.paths) == (None, None, (), ())
    with pytest.raises(ValidationError) as caught:
        Upstream.model_validate({})
    assert [finding["loc"] for finding in caught.value.errors()] == [("name",), ("base_url",)]


def test_a_key_is_known_by_its_hash() -> None:
    """64 hexadecimal digits in any case, known scopes; the tenant is the key's name unless it is given."""
    key = Key.model_validate({"name": "ci", "sha256": "AB" * 32, "scopes": ["context", "approve"]})
    assert (key.sha256, key.scopes, key.tenant_name) == ("ab" * 32, ("context", "approve"), "ci")
    shared = Key.model_validate({"name": "ci", "sha256": "0" * 64, "scopes": ["admin"], "tenant": "team"})
    assert shared.tenant_name == "team"
    for wrong in ({"sha256": "ab" * 31}, {"sha256": "g" * 64}, {"scopes": ["root"]}, {"name": "a\nb"}):
        with pytest.raises(ValidationError):
            Key.model_validate({"name": "ci", "sha256": "0" * 64, "scopes": ["admin"], **wrong})
