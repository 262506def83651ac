"""An objection is an answer with a rule."""

from gateway.plugin.shell.objection import Objection


def test_objection_carries_rule_and_message() -> None:
    """One for the audit log, one for a person."""
    objection = Objection("option", "sort writes.")
    assert (objection.rule, str(objection)) == ("option", "sort writes.")
