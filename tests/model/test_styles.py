"""How models are asked for their answers, and what is learnt of those that refuse."""

import pytest

from gateway.model.styles import MODELS, Streams, Style, Styles, completed_request, without


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
def test_what_is_left_out_next(style: Streams, status: int, refusal: bytes, then: Streams | None) -> None:
    """The field that the refusal names; nothing where it is about something else."""
    expected = None if then is None else Style(then)
    assert without(Style(style), status=status, refusal=refusal) == expected


#: OpenAI's refusal for its reasoning models.
OLD_LIMIT = b"""{"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use
 'max_completion_tokens' instead.", "type": "invalid_request_error", "param": "max_tokens"}}"""


def test_the_limit_of_tokens_gets_its_newer_name() -> None:
    """Once, where the refusal names both; streams stay as they are."""
    learnt = without(Style("plain"), status=400, refusal=OLD_LIMIT)
    assert learnt == Style("plain", new_limit=True)
    assert without(learnt, status=400, refusal=OLD_LIMIT) is None
    body = completed_request({"model": "m", "max_tokens": 5, "top_p": 1}, learnt)
    assert body == {"model": "m", "max_completion_tokens": 5, "top_p": 1, "stream": True}
    assert without(Style(), status=400, refusal=b"max_tokens must be at most 4096") is None


def test_what_is_asked_for() -> None:
    """The client's own words about streams do not count."""
    body = {"model": "m", "stream": "yes", "stream_options": {"include_usage": False}}
    assert completed_request(body, Style("usage")) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert completed_request(body, Style("plain")) == {"model": "m", "stream": True}
    assert completed_request(body, Style("never")) == {"model": "m", "stream": False}


def test_so_many_models_are_remembered() -> None:
    """Clients can name any: the oldest are forgotten."""
    styles = Styles()
    for n in range(MODELS + 1):
        styles.learn("up", f"model-{n}", Style("never"))
    assert styles.of("up", "model-0", configured="usage") == Style("usage")
    assert styles.of("up", "model-1", configured="usage") == Style("never")
    assert styles.of("other", "model-1", configured="plain") == Style("plain")
