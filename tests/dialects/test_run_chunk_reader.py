"""What a client's answer takes from the chunks of a run."""

from gateway.dialects import chat_chunks as chunks
from gateway.dialects.run_chunk_reader import TurnState


def test_chunk_deltas_are_returned_at_once_and_facts_at_the_end() -> None:
    """An event is told beside the answer; facts without a type are of the whole answer."""
    turn = TurnState()
    assert turn.take_chunk(chunks.build_delta({"role": "assistant", "reasoning_content": "Hm"})) == (
        {"reasoning_content": "Hm"},
        None,
    )
    assert turn.take_chunk(chunks.build_event({"type": "run.started"})) == ({}, {"type": "run.started"})
    assert turn.take_chunk(chunks.build_facts({"run_id": "run_1"})) == ({}, None)
    assert turn.take_chunk({"choices": [], "usage": {"total_tokens": 5}}) == ({}, None)
    assert turn.take_chunk({"about": {"system_fingerprint": "f"}, "about_choice": {"stop_reason": 1}}) == ({}, None)
    assert (turn.context, turn.usage) == ({"run_id": "run_1"}, {"total_tokens": 5})
    assert (turn.about, turn.about_choice) == ({"system_fingerprint": "f"}, {"stop_reason": 1})


def test_first_finish_reason_of_a_run_is_kept() -> None:
    """One that the API does not have is `stop`."""
    turn = TurnState()
    turn.take_chunk(chunks.build_finish("eos"))
    turn.take_chunk(chunks.build_finish("length"))
    assert turn.finish == "stop"
