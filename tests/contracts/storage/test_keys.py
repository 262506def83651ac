"""Keys as they are stored."""

from dataclasses import replace

from tests.plugins.stores.contract_keys import key


def test_key_ends_at_its_expiry_time_or_revocation() -> None:
    """The time itself is the first moment at which it is not valid."""
    forever, short = key(), key(expires_s=20.0)
    assert not forever.has_ended(1e12)
    assert [short.has_ended(now_s) for now_s in (19.9, 20.0)] == [False, True]
    assert replace(forever, revoked_s=11.0).has_ended(11.0)
