"""The callers that use an upstream lately."""

from gateway.upstream.recent_callers import LATELY_S, Callers

ANN, BEN, EVE = ("t", "ann"), ("t", "ben"), ("u", "ann")


def test_recent_callers_remember_another_caller_for_a_while() -> None:
    """Whoever asks most often hides nobody."""
    callers = Callers()
    assert not callers.has_others(ANN, 0.0)
    callers.note_request(ANN, 0.0)
    assert callers.has_others(BEN, 0.0) and not callers.has_others(ANN, 0.0)
    for now_s in (1.0, 2.0, 3.0):
        callers.note_request(EVE, now_s)
    assert callers.has_others(EVE, LATELY_S) and not callers.has_others(EVE, LATELY_S + 0.1)
    assert callers.has_others(ANN, LATELY_S + 3.0) and not callers.has_others(ANN, LATELY_S + 3.1)
