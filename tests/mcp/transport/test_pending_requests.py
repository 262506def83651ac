"""The bound of what a server asks."""

from contextlib import ExitStack

import anyio

from gateway.mcp.transport.pending_requests import ID_CHARS, MIB, REQUESTS, Requests, has_long_id


async def test_number_of_waiting_responses_is_bounded() -> None:
    """Answers that were taken do not count, however many they are."""
    requests = Requests()
    for _ in range(2 * REQUESTS):
        with requests.answer(1):
            assert requests.excess is None
    with ExitStack() as waiting:
        for number in range(REQUESTS):
            waiting.enter_context(requests.answer(number))
        assert requests.excess is None
        with requests.answer(None):
            assert requests.excess == "it sent requests of its own and left more than 1,000 answers to them waiting"
        assert requests.excess is None


async def test_bytes_of_server_requests_are_bounded_while_a_response_waits() -> None:
    """Once none waits they are counted anew."""
    requests = Requests()
    for _ in range(3):
        with requests.answer(1):
            requests.add(2, MIB << 20)
            assert requests.excess is None
    with requests.answer(1):
        requests.add(2, MIB << 20)
        requests.add(None, 1)
        assert requests.excess == "it sent more than 32 MiB of requests of its own and did not take the answers"
    assert requests.excess is None


async def test_bytes_of_accepted_responses_do_not_count() -> None:
    """Although others wait."""
    requests = Requests()
    with requests.answer(1):
        for _ in range(3):
            requests.add(2, MIB << 20)
            with requests.answer(2):
                assert requests.excess is None


async def test_bytes_of_requests_that_were_cancelled_do_not_count() -> None:
    """Whether they are answered already or not; an answer that waits is given up. What is no id cancels nothing."""
    requests = Requests()
    with requests.answer(1):
        for _ in range(3):
            requests.add("2", MIB << 20)
            requests.cancel({"requestId": 2})
            assert requests.excess is None
        for _ in range(3):
            requests.add(2, MIB << 20)
            with requests.answer(2):
                requests.cancel({"requestId": "2"})
                await anyio.sleep_forever()
            assert requests.excess is None
        requests.add(2, 1)
        requests.cancel({"requestId": 2})
        with requests.answer(2):  # it comes too late
            await anyio.sleep_forever()
        requests.add(1, MIB << 20)
        for params in (None, {}, {"requestId": True}, {"requestId": [1]}, {"requestId": 3}):
            requests.cancel(params)
        requests.add(2, 1)
        assert requests.excess is not None


def test_length_of_request_ids_is_bounded() -> None:
    """An id may be a number."""
    assert not has_long_id("p" * ID_CHARS) and has_long_id("p" * (ID_CHARS + 1))
    assert not has_long_id(7)
