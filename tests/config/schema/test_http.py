"""The sections about requests and upstreams."""

import pytest
from pydantic import ValidationError

from gateway.config.schema.http import Limits, Passthrough, Timeouts, Tls, Upstream


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
