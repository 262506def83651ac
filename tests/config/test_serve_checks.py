"""The rules for access tokens of an issuer, and for workflows that are tools."""

import pytest
from config.folder import Folder

KEYS = f"keys: [{{name: a, sha256: '{'0' * 64}', scopes: [admin]}}]\npublic_url: https://gateway.example.com\n"
OAUTH = "issuer: 'https://i', audience: a, scopes: {mcp: [tools]}"


def serve(oauth: str, *, before: str = KEYS) -> str:
    return f"{before}mcp: {{serve: {{oauth: {{{oauth}}}}}}}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (serve(OAUTH + ", tenant: a", before="public_url: 'https://g'\n"), "mcp.serve.oauth: without keys every"),
        (serve(OAUTH + ", tenant: a", before=KEYS.partition("public_url")[0]), "mcp.serve.oauth: needs public_url"),
        (serve(OAUTH), "3:22 mcp.serve.oauth: expected tenant or tenant_claim"),
        (serve(OAUTH + ", tenant: a, tenant_claim: b"), "mcp.serve.oauth.tenant_claim: tenant and tenant_claim are"),
        (serve("issuer: 'https://i', audience: a, scopes: {}, tenant: a"), "mcp.serve.oauth.scopes: expected at least"),
        (serve("issuer: 'http://i', audience: a, scopes: {a: [tools]}, tenant: a"), "oauth.issuer: the keys of tokens"),
        (serve(OAUTH + ", tenant: a, jwks_url: 'http://i/keys'"), "mcp.serve.oauth.jwks_url: the keys of tokens must"),
        (serve(OAUTH + ", tenant: a, jwks_url: 'http://[i'"), "mcp.serve.oauth.jwks_url: the host or the port"),
        (serve(OAUTH + ", tenant: a", before=KEYS.replace("name: a", "name: 'oauth:a'")), "keys[0].name: callers with"),
        (
            serve("issuer: 'https://i', audience: a, scopes: {a: [admin]}, tenant: a"),
            "scopes.a[0]: expected one of tools, approve",
        ),
    ],
)
def test_unsafe_oauth_settings_are_reported(folder: Folder, text: str, problem: str) -> None:
    """With its place and the way out."""
    assert problem in folder.problem(text)


@pytest.mark.parametrize(
    "oauth",
    [
        OAUTH + ", tenant_claim: org",
        OAUTH.replace("https://i", "http://127.0.0.1:9000/realm") + ", tenant: a",
        OAUTH.replace("https://i", "http://i") + ", tenant: a, jwks_url: 'https://i/keys'",
    ],
)
def test_safe_oauth_settings_are_accepted(folder: Folder, oauth: str) -> None:
    """Keys come over TLS, or from this machine."""
    serve_ = folder.load(serve(oauth)).settings.mcp.serve
    assert serve_ is not None and serve_.oauth is not None and serve_.oauth.scope_claim == "scope"


@pytest.mark.parametrize("how", ["tools", "both", "prompts"])
def test_mcp_server_named_workflow_is_refused(folder: Folder, how: str) -> None:
    """Where they are tools."""
    text = f"mcp: {{servers: {{workflow: {{command: x}}}}, serve: {{workflows: {how}}}}}"
    if how == "prompts":
        assert "workflow" in folder.load(text).settings.mcp.servers
    else:
        assert "mcp.servers.workflow: workflows are tools of this name, workflow.NAME" in folder.problem(text)
