"""The rules of `mcp.serve` that span several keys."""

from urllib.parse import urlsplit

from gateway.config.document import Document
from gateway.config.problems import KeyPath
from gateway.config.schema.serve_oauth import CALLER_PREFIX
from gateway.config.values.addresses import Address
from gateway.config.values.scalars import parse_flag

_OAUTH: KeyPath = ("mcp", "serve", "oauth")
#: What workflows that are tools have in front of their names (`gateway.mcp_server.listing`).
_WORKFLOW = "workflow"
_PROMPTS = "mcp.serve.workflows"


def is_keyless(document: Document) -> bool:
    """Return whether every client that reaches the gateway could do everything."""
    try:
        makes_keys = parse_flag(document.get("runtime_keys", "enabled"))
    except ValueError:
        makes_keys = False
    return document.get("keys") in (None, []) and not makes_keys


def check_serve(document: Document) -> None:
    """Report every conflict between `mcp.serve` and other keys."""
    _check_workflows(document)
    if not isinstance(document.get(*_OAUTH), dict):
        return
    if is_keyless(document):
        document.complain(_OAUTH, "without keys every client on this machine may do everything: add keys", key=True)
    if document.get("public_url") is None:
        document.complain(_OAUTH, "needs public_url: clients ask the issuer for a token for that URL", key=True)
    _check_tenant(document)
    _check_issuer(document)
    for path in document.iterate_matches("keys", "*", "name"):
        name = document.get(*path)
        if isinstance(name, str) and name.startswith(CALLER_PREFIX):
            document.complain(path, f"callers with a token have such names: choose one without {CALLER_PREFIX!r}")


def _check_workflows(document: Document) -> None:
    """Report a server whose tools would have the names of workflows."""
    path: KeyPath = ("mcp", "servers", _WORKFLOW)
    if document.get("mcp", "serve", "workflows") in ("tools", "both") and document.get(*path) is not None:
        text = f"workflows are tools of this name, {_WORKFLOW}.NAME: choose another one, or 'prompts' for {_PROMPTS}"
        document.complain(path, text, key=True)


def _check_tenant(document: Document) -> None:
    """Report a missing or doubled tenant setting of `mcp.serve.oauth`, and empty scopes."""
    given = [key for key in ("tenant", "tenant_claim") if document.get(*_OAUTH, key) is not None]
    if not given:
        document.complain(_OAUTH, "expected tenant or tenant_claim: whose approvals and runs do these callers share?")
    elif len(given) > 1:
        document.complain((*_OAUTH, given[1]), "tenant and tenant_claim are both given: keep one of the two", key=True)
    if document.get(*_OAUTH, "scopes") == {}:
        document.complain((*_OAUTH, "scopes"), "expected at least one entry: without any a token may do nothing")


def _check_issuer(document: Document) -> None:
    """Report keys that come over an open network: an attacker on the way could then issue tokens."""
    key = "issuer" if document.get(*_OAUTH, "jwks_url") is None else "jwks_url"
    url = document.get(*_OAUTH, key)
    if isinstance(url, str) and url.startswith("http:") and not _is_loopback(url):
        document.complain((*_OAUTH, key), "the keys of tokens must not come over http: write https://")


def _is_loopback(url: str) -> bool:
    try:
        return Address(urlsplit(url).hostname or "", 0).is_loopback
    except ValueError:
        return True  # no URL at all, which is reported where it stands
