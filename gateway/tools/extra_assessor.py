"""An assessor of the operator's own beside the built-in one of its tool (`adds: true`)."""

from gateway.contracts.risk import RiskAssessor, Verdict
from gateway.contracts.storage.store import Json


class AddedAssessor:
    """The union of two assessors: a call is harmless if either judges it so.

    A call that the operator's own one denies is denied. If one raises, so does this.
    """

    def __init__(self, built_in: RiskAssessor, own: RiskAssessor) -> None:
        self._built_in = built_in
        self._own = own

    def assess(self, arguments: Json) -> Verdict:
        known, own = self._built_in.assess(arguments), self._own.assess(arguments)
        if own.decision == "deny" or (own.decision == "auto" and known.decision != "auto"):
            return own
        return known
