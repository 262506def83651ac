"""The section about the gateway as an MCP server."""

import pytest
from pydantic import ValidationError

from gateway.config.schema.mcp_serve import RESERVED_PATHS
from gateway.config.schema.settings import Settings


def settings(serve: object) -> Settings:
    return Settings.model_validate({"mcp": {"serve": serve}})


def test_mcp_serve_is_off_by_default() -> None:
    """An empty section is all defaults; none is off."""
    assert Settings.model_validate({}).mcp.serve is None and settings(None).mcp.serve is None
    serve = settings({}).mcp.serve
    assert serve is not None and (serve.path, serve.wait, serve.tools) == ("/mcp", 45.0, ())
    assert (serve.workflows, serve.search_over, serve.sessions.most) == ("prompts", None, 1000)


def test_mcp_serve_path_of_other_pages_is_refused() -> None:
    """Nor does it end in a slash, or name one that clients would have to quote."""
    serve = settings({"path": "/tools/mcp"}).mcp.serve
    assert serve is not None and serve.path == "/tools/mcp"
    for path in (*RESERVED_PATHS, "/v1/mcp", "/", "/mcp/", "mcp", "/a b", "/mcp?x"):
        with pytest.raises(ValidationError):
            settings({"path": path})


def test_key_tools_setting_accepts_globs() -> None:
    """The scope `tools` is one of its own."""
    key = {"name": "agent", "sha256": "ab" * 32, "scopes": ["tools"], "tools": ["time.*"]}
    assert Settings.model_validate({"keys": [key]}).keys[0].tools == ("time.*",)
