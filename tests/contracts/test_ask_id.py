"""Ids of conversations that ask before each call."""

from gateway.contracts.ask_id import ask_id


def test_an_id_is_the_same_for_ever() -> None:
    """Stores have been filled with them."""
    assert ask_id("acme", "ann", "c1") == "ask_2ab72dd6f2e0ee6c1d497f99"


def test_an_id_can_stand_in_a_path_and_is_of_one_conversation() -> None:
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
