"""The rights of callers by a configuration: its keys, and what of the calls of MCP clients may still run."""

import time
from collections.abc import Callable, Sequence

from gateway.auth.key_policy import build_caller
from gateway.auth.keyring import Key, KeyRing, LentKeys, StoredKeys
from gateway.config import Settings
from gateway.contracts.caller import Caller
from gateway.tools.client_rights import ClientRights, Refusal
from gateway.tools.decision_rules import ApprovalRequirement, DecisionRules


def build_key_ring(
    settings: Settings,
    *,
    stored: StoredKeys | None = None,
    lent: LentKeys | None = None,
    now_s: Callable[[], float] = time.time,
) -> KeyRing:
    """Return the keys of a configuration, with the keys made while the gateway runs if it allows them.

    `stored`, `lent` and `now_s`: see `KeyRing`.
    """
    keys = [Key(bytes.fromhex(key.sha256), build_caller(key)) for key in settings.keys]
    return KeyRing(keys, lent=lent, stored=stored if settings.runtime_keys.enabled else None, now_s=now_s)


def build_decision_rules(settings: Settings) -> DecisionRules:
    """Return the rules of a configuration about who decides on calls."""
    wanted = settings.approvals
    requirements = [
        ApprovalRequirement(approvals=one.approvals, tools=one.tools, levels=one.risk) for one in wanted.require
    ]
    return DecisionRules(refuses_self=wanted.self_ == "refuse", requirements=tuple(requirements))


def build_client_refusal(settings: Settings, keys: KeyRing) -> Refusal:
    """Return what finds why a call of an MCP client may not run any more, by the `keys` of this configuration."""
    serve = settings.mcp.serve
    if serve is None:
        return lambda exchange: None if exchange.job.call is None else "This gateway serves no MCP clients any more."

    def find_callers(name: str) -> Sequence[Caller]:
        return [key.caller for key in keys.get_keys_by_name(name)]

    return ClientRights(find_callers, served=serve.tools, serves_workflows=serve.has_workflow_tools).find_refusal
