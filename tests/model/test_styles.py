"""How models are asked for their answers, and what is learnt of those that refuse."""

import pytest

from gateway.model.styles import MODELS, Style, Styles, completed_request, without


@pytest.mark.parametrize(
    ("style", "status", "refusal", "then"),
    [
        ("usage", 400, b"Unknown field: stream_options", "plain"),
        ("usage", 422, b"include_usage is not permitted", "plain"),
        ("usage", 400, b"Streaming is not supported", "never"),
        ("plain", 400, b"unknown field stream_options", "never"),
        ("plain", 501, b"no STREAM here", "never"),
        ("plain", 400, b'{"error": {"message": "Bad value", "param": "stream"}}', "never"),
        ("plain", 422, b'{"detail": [{"loc": ["body", "stream"], "msg": "Extra inputs are not permitted"}]}', "never"),
        ("plain", 400, b"This model can't be streamed: streaming isn't available.", "never"),
        ("plain", 400, b"`stream` must be false", "never"),
        ("plain", 400, b"Unsupported parameter: 'stream'", "never"),
        ("plain", 400, b"This model cannot stream", "never"),
        ("usage", 400, b"Your text about a stream is too long.", None),
        ("usage", 400, b"The image is not supported. It ended in mid-stream.", None),
        ("usage", 400, b'{"error": {"message": "Bad body", "param": "messages"}, "request": {"stream": true}}', None),
        ("never", 400, b"stream must be true", None),
        ("usage", 400, b"The upstream is broken", None),
        ("usage", 500, b"stream_options", None),
        ("usage", 429, b"stream", None),
        ("usage", 400, b"", None),
    ],
)
def test_what_is_left_out_next(style: Style, status: int, refusal: bytes, then: Style | None) -> None:
    """The field that the refusal names; nothing where it is about something else."""
    assert without(style, status=status, refusal=refusal) == then


def test_what_is_asked_for() -> None:
    """The client's own words about streams do not count."""
    body = {"model": "m", "stream": "yes", "stream_options": {"include_usage": False}}
    assert completed_request(body, "usage") == {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    assert completed_request(body, "plain") == {"model": "m", "stream": True}
    assert completed_request(body, "never") == {"model": "m", "stream": False}


def test_so_many_models_are_remembered() -> None:
    """Clients can name any: the oldest are forgotten."""
    styles = Styles()
    for n in range(MODELS + 1):
        styles.learn("up", f"model-{n}", "never")
    assert styles.of("up", "model-0", configured="usage") == "usage"
    assert styles.of("up", "model-1", configured="usage") == "never"
    assert styles.of("other", "model-1", configured="plain") == "plain"
