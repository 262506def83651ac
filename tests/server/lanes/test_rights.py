"""The rights of callers as a configuration has them."""

from dataclasses import replace

from gateway.config import Settings
from gateway.server.lanes.rights import build_client_refusal, build_key_ring
from gateway.tools.client_rights import Refusal
from tests.tools.doubles import exchange

CALL = replace(
    exchange("here.echo"), job=replace(exchange("here.echo").job, call={"tool": "here.echo", "arguments": {}})
)
KEYS = [
    {"name": "anna", "sha256": "a" * 64, "scopes": ["context", "approve"], "tenant": "team"},
    {"name": "bob", "sha256": "b" * 64, "scopes": ["context"], "tenant": "team"},
]


def settings(**further: object) -> Settings:
    return Settings.model_validate({"keys": KEYS, **further})


def refusal_of(**further: object) -> Refusal:
    found = settings(**further)
    return build_client_refusal(found, build_key_ring(found))


def test_deciders_are_the_approving_keys_of_their_tenant() -> None:
    """In their own tenant."""
    keys = build_key_ring(settings())

    assert list(keys.list_deciders("team")) == ["anna"]
    assert list(keys.list_deciders("others")) == []


def test_mcp_client_call_is_refused_without_the_mcp_endpoint() -> None:
    """Other requests are none of its."""
    refusal = refusal_of()

    assert refusal(CALL) == "This gateway serves no MCP clients any more."
    assert refusal(replace(CALL, job=replace(CALL.job, call=None))) is None


def test_mcp_endpoint_refuses_tools_outside_its_served_list() -> None:
    """By the settings in use."""
    assert refusal_of(mcp={"serve": {"tools": ["here.*"]}})(CALL) is None
    assert "mcp.serve" in (refusal_of(mcp={"serve": {"tools": ["there.*"]}})(CALL) or "")
