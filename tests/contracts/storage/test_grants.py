"""Remembered wishes of people."""

from dataclasses import fields

from gateway.contracts.storage import journal
from gateway.contracts.storage.grants import AskBefore, Grant, ask_id


def test_the_journal_stores_them() -> None:
    """Under the names by which plugins know them, each bound to a tenant and a caller."""
    assert (journal.Grant, journal.AskBefore) == (Grant, AskBefore)
    for kind in (Grant, AskBefore):
        assert {"id", "tenant", "caller", "conversation"} <= {field.name for field in fields(kind)}


def test_a_grant_without_an_end_ends_with_its_run() -> None:
    facts = dict.fromkeys(("id", "tenant", "caller", "tool", "sha256", "granted_by"), "x")
    grant = Grant(run_id="run_1", conversation=None, definition_sha256="d", policy_sha256="p", created_s=1.0, **facts)
    assert grant.expires_s is None


def test_the_id_of_an_ask_is_the_same_for_ever() -> None:
    """Stores have been filled with them."""
    assert ask_id("acme", "ann", "c1") == "ask_2ab72dd6f2e0ee6c1d497f99"


def test_the_id_of_an_ask_can_stand_in_a_path_and_is_of_one_conversation() -> None:
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
