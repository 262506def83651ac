"""Remembered wishes of people."""

from dataclasses import fields

from gateway.contracts.storage import journal
from gateway.contracts.storage.grants import AskBefore, Grant, ask_id


def test_journal_exports_grant_and_ask_before_records() -> None:
    """Under the names by which plugins know them, each bound to a tenant and a caller."""
    assert (journal.Grant, journal.AskBefore) == (Grant, AskBefore)
    for kind in (Grant, AskBefore):
        assert {"id", "tenant", "caller", "conversation"} <= {field.name for field in fields(kind)}


def test_run_grant_has_no_expiry() -> None:
    facts = dict.fromkeys(("id", "tenant", "caller", "tool", "sha256", "granted_by"), "x")
    grant = Grant(run_id="run_1", conversation=None, definition_sha256="d", policy_sha256="p", created_s=1.0, **facts)
    assert grant.expires_s is None


def test_ask_id_is_stable() -> None:
    """Stores have been filled with them."""
    assert ask_id("acme", "ann", "c1") == "ask_2ab72dd6f2e0ee6c1d497f99"


def test_ask_id_is_path_safe_and_unique_per_conversation() -> None:
    """Of one caller in one tenant; wherever the names are cut."""
    whose = [
        ("acme", "ann", "a/b?c#d"),
        ("acme", "ann", "快"),
        ("acme", "bob", "快"),
        ("other", "bob", "快"),
        ("a", "b", "cd"),
        ("a", "bc", "d"),
    ]
    ids = {ask_id(*each) for each in whose}
    assert len(ids) == len(whose)
    assert all(each.removeprefix("ask_").isalnum() and len(each) == 28 for each in ids)
