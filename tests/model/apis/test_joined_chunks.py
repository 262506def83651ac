"""The chunks of an answer that is not streamed, as one."""

from gateway.model.apis.joined_chunks import join_chunks


def delta(**fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def test_texts_calls_and_lists_are_joined_and_the_last_chunk_ends_them() -> None:
    first = {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}
    second = {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}
    ending = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 1}}
    chunks = [
        {"id": "x", **delta(role="assistant")},
        "Hel",
        "lo",
        delta(reasoning_details=[1]),
        delta(reasoning_details=[2]),
        delta(tool_calls=[first]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]),
        delta(tool_calls=[second]),
        ending,
    ]
    joined = join_chunks(chunks)
    (choice,) = joined["choices"]
    assert (joined["id"], joined["usage"], choice["finish_reason"]) == ("x", {"prompt_tokens": 1}, "tool_calls")
    assert choice["delta"] == {
        "role": "assistant",
        "content": "Hello",
        "reasoning_details": [1, 2],
        "tool_calls": [{**first, "function": {"name": "f", "arguments": "{}"}}, second],
    }
