"""An assessor of the operator's own beside the built-in one."""

import pytest

from gateway.contracts.risk import Action, Verdict
from gateway.contracts.storage.store import Json
from gateway.tools.extra_assessor import AddedAssessor


class Says:
    """An assessor that always decides so; None: it raises."""

    def __init__(self, name: str, decision: Action | None) -> None:
        self._name, self._decision = name, decision

    def assess(self, arguments: Json) -> Verdict:
        del arguments
        if self._decision is None:
            raise RuntimeError
        return Verdict(self._decision, "whitelist" if self._decision == "auto" else "default", self._name)


@pytest.mark.parametrize(
    ("built_in", "own", "decision", "rule"),
    [
        ("auto", "auto", "auto", "built_in"),
        ("auto", "confirm", "auto", "built_in"),
        ("confirm", "auto", "auto", "own"),
        ("confirm", "confirm", "confirm", "built_in"),
        ("auto", "deny", "deny", "own"),
        ("confirm", "deny", "deny", "own"),
    ],
)
def test_added_assessor_combines_both_verdicts(built_in: Action, own: Action, decision: Action, rule: str) -> None:
    """Harmless is what either holds harmless; a deny counts."""
    verdict = AddedAssessor(Says("built_in", built_in), Says("own", own)).assess({})
    assert (verdict.decision, verdict.rule) == (decision, rule)


@pytest.mark.parametrize(("built_in", "own"), [("auto", None), (None, "auto")])
def test_added_assessor_propagates_an_exception(built_in: Action | None, own: Action | None) -> None:
    """The gate takes it for confirm."""
    with pytest.raises(RuntimeError):
        AddedAssessor(Says("built_in", built_in), Says("own", own)).assess({})
