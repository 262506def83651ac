"""The facts about an upstream."""

import dataclasses

import pytest

from gateway.upstream.endpoint import Endpoint


def test_the_key_is_not_shown() -> None:
    """Neither by repr nor in a log line made of it."""
    endpoint = Endpoint(name="up", host="h", port=1, authority=b"h:1", api_key=b"sk-secret")
    assert "sk-secret" not in repr(endpoint) and "sk-secret" not in f"{endpoint}"


def test_facts_do_not_change() -> None:
    """A reload makes new ones."""
    endpoint = Endpoint(name="up", host="h", port=1, authority=b"h:1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        endpoint.port = 2  # type: ignore[misc]
    assert (endpoint.base_path, endpoint.tls, endpoint.connect_s, endpoint.idle_s) == (b"", None, 5.0, 300.0)
