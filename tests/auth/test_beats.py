"""The beats of a process, and the doubt about its reads after it stood still."""

from gateway.auth.beats import STILL_S, Beats
from gateway.testing.clock import ManualClock


def test_stalled_process_doubts_its_reads_until_a_newer_read() -> None:
    """Before it beats again, and until a read is over that began behind that."""
    clock = ManualClock()
    beats = Beats(clock)
    clock.advance(100.0)
    assert not beats.is_doubtful, "nothing beats"
    began_s = beats.record_beat()
    clock.advance(STILL_S)
    assert not beats.is_doubtful
    beats.record_beat()
    clock.advance(STILL_S + 0.1)
    assert beats.is_doubtful
    woken_s = beats.record_beat()
    assert beats.is_doubtful
    beats.read(began_s)
    assert beats.is_doubtful
    beats.read(woken_s)
    assert not beats.is_doubtful
