"""The section about upstreams."""

import pytest
from pydantic import ValidationError

from gateway.config.schema.upstreams import (
    BreakerSettings,
    Health,
    Queue,
    Retry,
    TimeoutsSettings,
    Tls,
    UpstreamSettings,
)


def test_upstream_defaults_match_the_contract() -> None:
    """Seconds, bytes and parts."""
    assert TimeoutsSettings().model_dump() == {"connect": 5.0, "first_byte": 600.0, "idle": 300.0}
    assert Tls().model_dump() == {
        "verify": True,
        "ca_file": None,
        "cert_file": None,
        "key_file": None,
        "server_name": None,
    }
    assert BreakerSettings().model_dump() == {"failures": 5, "open": 10.0, "longest": 300.0}
    assert Health().model_dump() == {"path": "/models", "interval": 10.0, "timeout": 2.0, "fall": 3, "rise": 2}
    assert Queue().model_dump() == {"size": 100, "wait": 5.0}
    assert Retry().model_dump() == {
        "tries": 3,
        "budget": 0.2,
        "on": (
            *("connect", "reset", "timeout", "401", "402", "403", "404", "408", "429", "500", "502", "503", "504"),
            "529",
        ),
        "body": 1048576,
    }


def test_an_upstream_needs_a_name() -> None:
    """All else has a default: no key of ours, all models, the general paths, no rules."""
    upstream = UpstreamSettings.model_validate({"name": "a", "base_url": "http://a"})
    assert (upstream.api_key, upstream.auth_header, upstream.models, upstream.paths) == (None, None, (), ())
    assert (upstream.breaker, upstream.retry, upstream.health, upstream.hedge, upstream.queue) == (None,) * 5
    with pytest.raises(ValidationError) as caught:
        UpstreamSettings.model_validate({})
    assert [finding["loc"] for finding in caught.value.errors()] == [("name",)]


def test_upstream_urls_are_the_urls_of_its_endpoints() -> None:
    """Or the one that it has."""
    assert UpstreamSettings.model_validate({"name": "a", "base_url": "http://a"}).address == "http://a"
    endpoints = [{"url": "http://a"}, {"url": "http://b/v1"}]
    assert UpstreamSettings.model_validate({"name": "a", "endpoints": endpoints}).urls == ("http://a", "http://b/v1")


@pytest.mark.parametrize("reason", ["connect", 429, "503", "599"])
def test_retry_reason_is_a_word_or_a_status(reason: object) -> None:
    """A status may be written as a number."""
    assert Retry.model_validate({"on": [reason]}).on == (str(reason),)


@pytest.mark.parametrize("reason", ["always", 200, "5xx", True, "", 600])
def test_unknown_retry_reasons_are_refused(reason: object) -> None:
    """An answer that is good is never one."""
    with pytest.raises(ValidationError, match="expected connect, reset, timeout, or a status from 400 to 599"):
        Retry.model_validate({"on": [reason]})
