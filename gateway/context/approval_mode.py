"""The ways in which requests wait for a person: chosen by header, key, chain or the default."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gateway.contracts.caller import Caller

ApprovalMode = Literal["turn", "hold", "reject"]


@dataclass(frozen=True, slots=True)
class ApprovalModes:
    """The approval modes of one configuration. `default` applies if header, key and chain name none."""

    default: ApprovalMode = "turn"
    of_chains: Mapping[str, ApprovalMode] = field(default_factory=dict)

    def get_mode(self, wanted: str | None, *, caller: Caller, chain: str) -> ApprovalMode:
        """Return the mode of a request whose header is `wanted`. A `reject` of the operator always wins."""
        of_key, of_chain = caller.approvals, self.of_chains.get(chain)
        if "reject" in (wanted, of_key, of_chain, self.default):
            return "reject"
        return "hold" if (wanted or of_key or of_chain or self.default) == "hold" else "turn"
