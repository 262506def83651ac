"""The parts that all dialects write alike."""

from gateway.demo.dialect import call_id, format_event


def test_sse_event_is_formatted_with_data_and_name() -> None:
    """An event is one line of data, with its name before it where the API has names."""
    assert format_event({"a": "x\ny"}) == b'data: {"a":"x\\ny"}\n\n'
    assert format_event({}, event="ping") == b"event: ping\ndata: {}\n\n"


def test_call_id_is_built_from_digest_and_index() -> None:
    """Ids of calls differ by request and by index."""
    assert call_id("call", digest="ab" * 32, index=7) == "call_" + "ab" * 10 + "0007"
