"""How the requests of one configuration wait for a person: by their header, their key, their chain, or all alike."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ApprovalMode = Literal["turn", "hold", "reject"]


@dataclass(frozen=True, slots=True)
class ApprovalModes:
    """`default` holds where neither the header of a request nor its key nor its chain says otherwise."""

    default: ApprovalMode = "turn"
    of_keys: Mapping[str, ApprovalMode] = field(default_factory=dict)
    of_chains: Mapping[str, ApprovalMode] = field(default_factory=dict)

    def of(self, wanted: str | None, *, caller: str, chain: str) -> ApprovalMode:
        """Returns the mode of a request whose header says `wanted`. A `reject` of the operator's is never loosened."""
        of_key, of_chain = self.of_keys.get(caller), self.of_chains.get(chain)
        if "reject" in (wanted, of_key, of_chain, self.default):
            return "reject"
        return "hold" if (wanted or of_key or of_chain or self.default) == "hold" else "turn"
