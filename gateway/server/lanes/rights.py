"""The rights of callers by a configuration, where they are looked up anew: who may decide, and what may still run."""

from gateway.config import Settings
from gateway.keys.terms import caller_of
from gateway.lanes.keys import Key, KeyRing, StoredKeys
from gateway.tools.rights import ClientRights, Refusal


def key_ring(settings: Settings, stored: StoredKeys) -> KeyRing:
    """Return the keys of a configuration, with those that were made while the gateway runs if it allows them."""
    keys = [Key(bytes.fromhex(key.sha256), caller_of(key)) for key in settings.keys]
    return KeyRing(keys, stored=stored if settings.runtime_keys.enabled else None)


def barred(settings: Settings, stored: StoredKeys) -> Refusal:
    """Return what finds why a call of an MCP client may not run any more."""
    serve = settings.mcp.serve
    if serve is None:
        return lambda exchange: None if exchange.call is None else "This gateway serves no MCP clients any more."
    keys = key_ring(settings, stored)
    return ClientRights(keys, served=serve.tools, serves_workflows=serve.has_workflow_tools).refusal
