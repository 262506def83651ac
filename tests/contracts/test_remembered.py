"""Remembered wishes of people."""

from dataclasses import fields

from gateway.contracts import journal
from gateway.contracts.remembered import AskBefore, Grant


def test_the_journal_stores_them() -> None:
    """Under the names by which plugins know them, each bound to a tenant and a caller."""
    assert (journal.Grant, journal.AskBefore) == (Grant, AskBefore)
    for kind in (Grant, AskBefore):
        assert {"id", "tenant", "caller", "conversation"} <= {field.name for field in fields(kind)}


def test_a_grant_without_an_end_ends_with_its_run() -> None:
    facts = dict.fromkeys(("id", "tenant", "caller", "tool", "sha256", "granted_by"), "x")
    grant = Grant(run_id="run_1", conversation=None, definition_sha256="d", policy_sha256="p", created_s=1.0, **facts)
    assert grant.expires_s is None
