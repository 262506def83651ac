"""The approvals of a call that several keys must approve."""

from gateway.contracts.canonical_json import call_sha256
from gateway.contracts.check_word import check_word
from gateway.contracts.storage.endorsements import (
    Endorsement,
    get_check_word,
    get_waiting_arguments,
    hash_waiting_call,
    list_endorsements,
    select_counted_endorsements,
    write_endorsements,
)
from tests.plugins.stores.records import approval

EDITED = '{"command":"make -n"}'


def given(by: str, sha256: str, user: str | None = None) -> Endorsement:
    return Endorsement(by=by, user=user, via="rest", at_s=5.0, sha256=sha256)


def test_only_endorsements_of_the_current_arguments_count() -> None:
    """A person may have changed the call since; the others stay on record."""
    edited = call_sha256("execute_command", EDITED)
    both = (given("anna", "a" * 64, "eve"), given("ben", edited))
    first = approval(required=3, given=write_endorsements(both))
    changed = approval(required=3, given=write_endorsements(both), edited=EDITED)
    assert list_endorsements(first) == list_endorsements(changed) == both
    assert (select_counted_endorsements(first), hash_waiting_call(first)) == (both[:1], "a" * 64)
    assert (select_counted_endorsements(changed), hash_waiting_call(changed)) == (both[1:], edited)
    assert (get_waiting_arguments(first), get_waiting_arguments(changed)) == (first.arguments, EDITED)
    assert list_endorsements(approval()) == ()


def test_has_endorser_matches_key_or_end_user() -> None:
    one = given("anna", "a" * 64, "eve")
    assert one.has_endorser("anna", None) and one.has_endorser("ben", "eve")
    assert not one.has_endorser("ben", None) and not given("anna", "a" * 64).has_endorser("ben", None)


def test_check_word_is_bound_to_the_call_that_would_run() -> None:
    """A pending call that a person has changed has another one; after a decision it is that of the model's call."""
    first, edited = approval(), approval(edited=EDITED)
    expected = [check_word(first.secret, first.id, call_sha256(first.tool, it)) for it in (first.arguments, EDITED)]
    assert [get_check_word(first), get_check_word(edited)] == expected and len({*expected}) == 2
    assert get_check_word(approval(edited=EDITED, state="done")) == expected[0]
