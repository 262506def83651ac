"""The rights of MCP clients by the configuration in use, looked at anew before each of their calls runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange, fits_any

#: The scope of calls, and that of `POST /workflows/{name}/runs`, which a workflow as a tool needs besides it.
SCOPE: Final = "tools"
WORKFLOW_SCOPE: Final = "context"

#: Returns why the call of an exchange may not run any more; None: it may.
Refusal: TypeAlias = Callable[[Exchange], str | None]


def are_all_allowed(patterns: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether the patterns, if there are any, match every one of these tool names."""
    return not patterns or all(fits_any(name, patterns) for name in names)


@dataclass(frozen=True, slots=True)
class ClientRights:
    """The rights of MCP clients in one configuration. `served` are the tools of all clients (config: mcp.serve.tools).

    `find_callers` returns the callers that have keys of a name. `serves_workflows`: workflows are tools there.
    """

    find_callers: Callable[[str], Sequence[Caller]]
    served: Sequence[str]
    serves_workflows: bool

    def find_refusal(self, exchange: Exchange) -> str | None:
        """Return why the call of an exchange may not run any more; None: it may, or is none of an MCP client.

        A key that is gone takes nothing along (docs/keys.md), nor does a token, which is looked at as it comes.
        """
        if exchange.job.call is None:
            return None
        is_workflow, caller = exchange.job.workflow is not None, exchange.caller
        names = (exchange.job.call["tool"], *exchange.steering.only_tools)
        if not are_all_allowed(self.served, names) or (is_workflow and not self.serves_workflows):
            return "MCP clients may not use this tool any more (mcp.serve)."
        callers = self.find_callers(caller.name)
        if not callers:
            return None
        callers = [one for one in callers if one.tenant == caller.tenant]
        if not callers:
            return f"The key {caller.name!r} is not one of this tenant any more."
        needed = {SCOPE, WORKFLOW_SCOPE} if is_workflow else {SCOPE}
        callers = [one for one in callers if needed <= one.scopes]
        if not callers:
            return f"The key {caller.name!r} lacks a scope that the call needs: {', '.join(sorted(needed))}."
        if not any(are_all_allowed(one.bounds.tools, names) for one in callers):
            return f"The key {caller.name!r} may not use this tool any more (keys[].tools)."
        return None
