"""The section about keys."""

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from gateway.config.schema.keys import KeySettings, RuntimeKeys

KEY = {"name": "ci", "sha256": "0" * 64, "scopes": ["admin"]}


def test_key_settings_require_a_sha256_and_known_scopes() -> None:
    """64 hexadecimal digits in any case, known scopes; the tenant is the key's name unless it is given."""
    key = KeySettings.model_validate({"name": "ci", "sha256": "AB" * 32, "scopes": ["context", "approve"]})
    assert (key.sha256, key.scopes, key.tenant_name) == ("ab" * 32, ("context", "approve"), "ci")
    shared = KeySettings.model_validate({"name": "ci", "sha256": "0" * 64, "scopes": ["admin"], "tenant": "team"})
    assert shared.tenant_name == "team"
    for wrong in ({"sha256": "ab" * 31}, {"sha256": "g" * 64}, {"scopes": ["root"]}, {"name": "a\nb"}):
        with pytest.raises(ValidationError):
            KeySettings.model_validate({"name": "ci", "sha256": "0" * 64, "scopes": ["admin"], **wrong})


def test_key_settings_without_bounds_are_unrestricted() -> None:
    """Empty lists allow everything, as everywhere."""
    key = KeySettings.model_validate(KEY)
    assert key.expires is None and key.metadata == {}
    assert (key.models, key.tools, key.upstreams, key.networks) == ((), (), (), ())
    given = {
        "expires": "2027-01-31T23:59:59+01:00",
        "models": ["gpt-4*"],
        "upstreams": ["up"],
        "networks": ["10.0.0.0/8", "::1"],
        "metadata": {"cost_centre": "4711"},
    }
    bound = KeySettings.model_validate({**KEY, **given})
    assert bound.expires == datetime(2027, 1, 31, 22, 59, 59, tzinfo=UTC)
    assert list(map(str, bound.networks)) == ["10.0.0.0/8", "::1/128"]
    assert bound.model_dump(mode="json")["expires"] == "2027-01-31T22:59:59Z"
    assert KeySettings.model_validate(bound.model_dump(mode="json")) == bound


def test_runtime_keys_are_disabled_by_default() -> None:
    """A rotated key stays valid for a day."""
    assert RuntimeKeys().model_dump() == {"enabled": False, "grace": 86400.0}
