"""Sessions: which cookies are accepted, until when, and the tokens of their forms."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from gateway.console.session import ConsoleSession, Sessions
from gateway.testing.clock import ManualClock

SECRET, DAY_S = b"s" * 32, 86_400.0


def made(clock: Callable[[], float], *, secret: bytes = SECRET, lifetime_s: float = DAY_S) -> Sessions:
    return Sessions(secret, lifetime_s=lambda: lifetime_s, now_s=clock)


def test_a_cookie_is_accepted_by_every_worker_of_the_store() -> None:
    clock = ManualClock(1000.0)
    begun = made(clock).begin("ann", "f1")
    cookie = made(clock).build_cookie(begun)
    assert made(clock).read(cookie) == begun
    assert made(clock, secret=b"t" * 32).read(cookie) is None
    assert begun.key == "ann" and begun.id not in cookie.replace(begun.id, "", 1)


def test_each_session_has_a_unique_id() -> None:
    sessions = made(ManualClock())
    ids = {sessions.begin("ann", "f1").id for _ in range(100)}
    assert len(ids) == 100 and all(len(one) >= 24 for one in ids)


def test_a_session_ends_when_its_time_is_over() -> None:
    clock = ManualClock(1000.0)
    sessions = made(clock)
    cookie = sessions.build_cookie(begun := sessions.begin("ann", "f1"))
    assert begun.ends_s == 1000.0 + DAY_S
    clock.advance(DAY_S - 1)
    assert sessions.read(cookie) == begun
    clock.advance(1)
    assert sessions.read(cookie) is None and not sessions.is_current(begun)


def test_shortened_session_lifetime_applies_at_once_and_longer_does_not() -> None:
    """The store forgets a sign-out at the end that the session had when it began."""
    clock = ManualClock(1000.0)
    begun = made(clock).begin("ann", "f1")
    clock.advance(3600)
    assert not made(clock, lifetime_s=1800.0).is_current(begun)
    clock.advance(DAY_S)
    assert not made(clock, lifetime_s=30 * DAY_S).is_current(begun)


def test_session_that_begins_in_the_future_is_invalid() -> None:
    """A cookie of a machine whose clock is wrong would last longer than it should."""
    sessions = made(ManualClock(1000.0))
    assert not sessions.is_current(ConsoleSession(id="i", key="ann", fingerprint="f", begun_s=1001.0, ends_s=1e12))


@given(st.text(max_size=200))
def test_arbitrary_text_is_not_a_valid_cookie(text: str) -> None:
    assert made(ManualClock(1000.0)).read(text) is None


def test_signed_value_of_a_wrong_shape_is_rejected_as_session() -> None:
    sessions = made(ManualClock(1000.0))
    for value in (None, [], ["id", "ann"], ["id", "ann", "f", "0", "9"], {"id": "ann"}, [1, "ann", "f", 0, 2000]):
        assert sessions.read(str(sessions._signer.dumps(value))) is None


@given(st.text(max_size=100))
def test_a_form_has_the_token_of_its_session_only(text: str) -> None:
    """Whatever characters somebody sends."""
    sessions = made(ManualClock(1000.0))
    one, other = sessions.begin("ann", "f1"), sessions.begin("ann", "f1")
    token = sessions.build_form_token(one)
    assert sessions.accepts(one, token) and not sessions.accepts(other, token)
    assert not sessions.accepts(one, text) and one.id not in token


def test_form_token_check_handles_lone_surrogates() -> None:
    sessions = made(ManualClock(1000.0))
    assert not sessions.accepts(sessions.begin("ann", "f1"), "\ud800")
