"""The operator's rules about decisions: may a key approve its own calls, and how many keys must approve a call."""

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gateway.contracts.risk import LEVELS, normalize_choice
from gateway.contracts.storage.journal import Approval


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequirement:
    """A number of keys that must approve the calls of some tools, by names and globs, at some risk levels of the model.

    Without tools it holds for all of them, without levels for every call.
    """

    approvals: int
    tools: Collection[str] = ()
    levels: Collection[str] = ()

    def names(self, tool: str) -> bool:
        """Return whether it is about calls of this tool."""
        return not self.tools or any(fnmatchcase(tool, pattern) for pattern in self.tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRules:
    """The rules of one configuration. Of several requirements that hold for a call, the highest number counts."""

    refuses_self: bool = False
    requirements: tuple[ApprovalRequirement, ...] = ()

    def count_required(self, tool: str, level: str | None) -> int:
        """Return how many keys must approve a call of this tool. `level` is the model's, and may be invalid.

        A level in another spelling counts, and one that is none of them counts as the highest.
        """
        word = None if level is None else normalize_choice(level)
        known = LEVELS[-1] if word is not None and word not in LEVELS else word
        found = (one for one in self.requirements if one.names(tool) and (not one.levels or known in one.levels))
        return max((one.approvals for one in found), default=1)

    def get_policy(self, tool: str) -> str:
        """Return the rules that apply to a tool as text for its policy hash; "" for none."""
        found = [f"{one.approvals}:{','.join(sorted(one.levels))}" for one in self.requirements if one.names(tool)]
        return "".join(("+no_self" if self.refuses_self else "", *(f"+{each}" for each in sorted(found))))

    def refuses(self, approval: Approval, *, key: str, user: str | None) -> bool:
        """Return whether the holder of this key may not approve a call, as it is of their own run.

        It is if the key began the run, or the end user did. `user` is the one whom the decision names.
        """
        return self.refuses_self and (approval.caller == key or (user is not None and approval.user == user))
