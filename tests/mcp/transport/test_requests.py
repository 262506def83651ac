"""The bound of what a server asks."""

from contextlib import ExitStack

from gateway.mcp.transport.requests import ID_CHARS, MIB, REQUESTS, Requests, has_long_id


def test_answers_that_wait_are_bounded() -> None:
    """Answers that were taken do not count, however many they are."""
    requests = Requests()
    for _ in range(2 * REQUESTS):
        with requests.answer():
            assert requests.excess is None
    with ExitStack() as waiting:
        for _ in range(REQUESTS):
            waiting.enter_context(requests.answer())
        assert requests.excess is None
        with requests.answer():
            assert requests.excess == "it sent requests of its own and left more than 1,000 answers to them waiting"
        assert requests.excess is None


def test_bytes_of_requests_are_bounded_while_an_answer_waits() -> None:
    """Once none waits they are counted anew."""
    requests = Requests()
    for _ in range(3):
        with requests.answer():
            requests.add(MIB << 20)
            assert requests.excess is None
    with requests.answer():
        requests.add(MIB << 20)
        requests.add(1)
        assert requests.excess == "it sent more than 32 MiB of requests of its own and did not take the answers"
    assert requests.excess is None


def test_ids_are_bounded() -> None:
    """An id may be a number."""
    assert not has_long_id("p" * ID_CHARS) and has_long_id("p" * (ID_CHARS + 1))
    assert not has_long_id(7)
