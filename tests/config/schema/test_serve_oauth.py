"""The section about access tokens of an issuer."""

import pytest
from pydantic import ValidationError

from gateway.config.schema.serve_oauth import ServeOAuth


def test_oauth_scopes_grant_only_tools_and_approve() -> None:
    """The tools and decisions of one endpoint, and nothing of the other pages."""
    named = {"issuer": "https://i", "audience": "a", "scopes": {"mcp": ["tools"], "boss": ["tools", "approve"]}}
    oauth = ServeOAuth.model_validate(named)
    assert oauth.scopes == {"mcp": ("tools",), "boss": ("tools", "approve")}
    assert (oauth.scope_claim, oauth.caller_claim, oauth.jwks_url) == ("scope", "sub", None)
    for scope in ("admin", "context", "metrics"):
        with pytest.raises(ValidationError):
            ServeOAuth.model_validate({**named, "scopes": {"mcp": [scope]}})


@pytest.mark.parametrize("missing", ["issuer", "audience", "scopes"])
def test_oauth_settings_require_every_value(missing: str) -> None:
    """The operator writes each: issuer, audience, and what tokens may do."""
    named = {"issuer": "https://i", "audience": "a", "scopes": {"mcp": ["tools"]}}
    with pytest.raises(ValidationError, match=missing):
        ServeOAuth.model_validate({name: value for name, value in named.items() if name != missing})
