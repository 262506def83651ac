"""Additions of programs to the requests of their users."""

import pytest

from gateway.dialects.messages.client_programs import find_end_user, is_billing_line


@pytest.mark.parametrize(
    ("user_id", "user"),
    [
        ("anna", "anna"),
        ('{"device_id":"d1","account_uuid":"","session_id":"s1"}', "d1"),
        ('{"device_id":"d1","account_uuid":"a1","session_id":"s1"}', "a1"),
        ('{"device_id":"d1"}', '{"device_id":"d1"}'),
        ('{"session_id":"s1","device_id":5}', '{"session_id":"s1","device_id":5}'),
        ('{"broken', '{"broken'),
        ("user_0123abcd_account__session_11-22", "user_0123abcd_account_"),
        ("user_0123abcd_account_aa-bb_session_11-22", "user_0123abcd_account_aa-bb"),
        ("user_session_1", "user_session_1"),
    ],
)
def test_end_user_is_named_without_the_session(user_id: str, user: str) -> None:
    """Where a program writes one into the id."""
    assert find_end_user(user_id) == user


def test_version_line_of_a_program_is_recognised() -> None:
    """By its name."""
    assert is_billing_line("x-anthropic-billing-header: cc_version=2;") and not is_billing_line("Be brief.")
