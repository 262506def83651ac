"""The sections about risk and approvals."""

from gateway.config.schema.approvals import ApprovalsSettings, Risk


def test_risk_and_approval_defaults_match_the_contract() -> None:
    """A model's own low counts, the standard profile, ask by default."""
    assert Risk().model_dump() == {
        "trust_llm": "always",
        "profile": "standard",
        "default": "confirm",
        "rules": {},
        "assessors": {},
    }
    assert ApprovalsSettings().model_dump() == {
        "mode": "turn",
        "chains": {},
        "inline_wait": 120.0,
        "expires": 86400.0,
        "remembered": 2592000.0,
        "on_reject": "abort",
        "self_": "allow",
        "require": (),
        "notify": (),
    }
