"""The settings of a server."""

import pytest

from gateway.mcp.server_facts import Config, OAuth, ServerEndpoint


@pytest.mark.parametrize(
    ("facts", "limits"),
    [
        ({}, (30.0, 150.0)),
        ({"timeout": 2.0}, (2.0, 10.0)),
        ({"timeouts": {"t": 60.0}}, (60.0, 300.0)),
        ({"timeouts": {"other": 60.0}}, (30.0, 150.0)),
        ({"max_timeout": 45.0}, (30.0, 45.0)),
        ({"timeouts": {"t": 60.0}, "max_timeout": 45.0}, (60.0, 60.0)),
    ],
)
def test_tool_timeout_overrides_the_server_timeout(facts: dict[str, float], limits: tuple[float, float]) -> None:
    """And without word of its progress never less than that, whatever the maximum is."""
    assert Config(name="s", command="s", **facts).get_limits_s("t") == limits  # type: ignore[arg-type]


def test_endpoint_repr_contains_no_secrets() -> None:
    """Settings that are logged by mistake show no credential."""
    credentials = OAuth(issuer="https://i", client_id="c", client_secret="canary")
    endpoint = ServerEndpoint(url="https://m/?key=canary", headers={"Authorization": "canary"}, oauth=credentials)
    assert "canary" not in repr(endpoint)
