"""The facts about an upstream."""

import dataclasses

import pytest

from gateway.upstream.endpoint import Endpoint, ModelAccess


def test_endpoint_key_is_hidden_from_repr() -> None:
    """Neither by repr nor in a log line made of it."""
    endpoint = Endpoint(name="up", host="h", port=1, authority=b"h:1", api_key=b"sk-secret")
    assert "sk-secret" not in repr(endpoint) and "sk-secret" not in f"{endpoint}"


def test_endpoint_is_immutable() -> None:
    """A reload makes new ones."""
    endpoint = Endpoint(name="up", host="h", port=1, authority=b"h:1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        endpoint.port = 2  # type: ignore[misc]
    assert (endpoint.base_path, endpoint.tls, endpoint.connect_s, endpoint.idle_s) == (b"", None, 5.0, 300.0)


@pytest.mark.parametrize(
    ("auth_header", "line"),
    [
        (None, b"Authorization: Bearer sk-secret\r\n"),
        (b"authorization", b"Authorization: Bearer sk-secret\r\n"),
        (b"x-api-key", b"X-Api-Key: sk-secret\r\n"),
    ],
)
def test_endpoint_key_is_sent_in_the_configured_header(auth_header: bytes | None, line: bytes) -> None:
    """Else into the header that is asked for; without a key there is no line."""
    facts = Endpoint(name="up", host="h", port=1, authority=b"h:1", auth_header=auth_header)
    assert facts.build_credential_line(b"authorization") == b""
    assert dataclasses.replace(facts, api_key=b"sk-secret").build_credential_line(b"authorization") == line


def test_endpoint_base_path_replaces_the_version_prefix() -> None:
    """That is `/v1` where its URL has no path."""
    facts = Endpoint(name="up", host="h", port=1, authority=b"h:1")
    assert facts.build_path(b"/models") == b"/v1/models"
    assert dataclasses.replace(facts, base_path=b"/x/v2").build_path(b"/models") == b"/x/v2/models"


@pytest.mark.parametrize(
    ("base_path", "path"),
    [
        (b"", b"/v1/messages"),
        (b"/v1", b"/v1/messages"),
        (b"/anthropic", b"/anthropic/v1/messages"),
        (b"/anthropic/v2beta1", b"/anthropic/v2beta1/messages"),
        (b"/v1/anthropic", b"/v1/anthropic/v1/messages"),
    ],
)
def test_path_of_messages_has_a_version_as_its_clients_add_it(base_path: bytes, path: bytes) -> None:
    access = ModelAccess(api="messages")
    facts = Endpoint(name="up", host="h", port=1, authority=b"h:1", base_path=base_path, models=access)
    assert facts.build_path(b"/messages") == path
