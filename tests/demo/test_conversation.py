"""The parts of reading that all APIs share."""

import pytest

from gateway.demo.conversation import (
    ConversationEntry,
    RefusalError,
    classify_text,
    is_json,
    read_body,
    read_conversation,
    read_texts,
)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b'"text"', b"\xff"])
def test_invalid_json_bodies_return_400(raw: bytes) -> None:
    """What is not one JSON object is refused with 400 invalid_json."""
    with pytest.raises(RefusalError) as refusal:
        read_body(raw)
    assert (refusal.value.status, refusal.value.code) == (400, "invalid_json")


def test_message_content_accepts_text_and_parts() -> None:
    """A content is a string, nothing, or parts, of which those without text are left out."""
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, "b", {"type": "text", "text": 1}]
    assert read_texts("a", param="p") == ("a",)
    assert read_texts(None, param="p") == ()
    assert read_texts(parts, param="p") == ("a", "b")
    with pytest.raises(RefusalError, match="'p' must be a string"):
        read_texts(3, param="p")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("hello", "answer"),
        ('Use {"tool": 1}', "answer"),
        ('{"a": 1}', "answer"),
        ('{"tool": "x", "parameters": {}, "terminate": false}', "call"),
        (' <think>{</think>\n```json\n{"tool": "x"}\n```\n', "call"),
        ('[{"tool": "x"}, {"tool": "y"}]', "call"),
        ('{"tool": "x", "parameters": {}', "broken_call"),
    ],
)
def test_model_text_is_classified_as_answer_call_or_broken_call(text: str, kind: str) -> None:
    """A prompted call, a broken one and an answer are told apart."""
    assert classify_text((text,)).kind == kind


def test_is_json_accepts_empty_and_valid_arguments() -> None:
    """Empty arguments are none; others must be JSON."""
    assert is_json("") and is_json("{}") and not is_json('{"a":')


@pytest.mark.parametrize("limit", [0, -1, True, "5", 1.5])
def test_invalid_token_limit_is_refused_by_name(limit: object) -> None:
    """A limit that is no whole number above 0 is refused by its name."""
    with pytest.raises(RefusalError) as refusal:
        read_conversation({"max_tokens": limit}, entries=(), max_tokens=("max_tokens",))
    assert refusal.value.param == "max_tokens"


def test_conversation_defaults() -> None:
    """Without a model it is `demo`; only `true` streams; the first limit that is set holds."""
    conversation = read_conversation(
        {"stream": 1, "b": 7}, entries=[ConversationEntry("user", ())], max_tokens=("a", "b")
    )
    assert (conversation.model, conversation.stream, conversation.max_tokens) == ("demo", False, 7)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (401, "authentication_error"), (403, "permission_error"),
     (404, "not_found_error"), (429, "rate_limit_error"), (500, "server_error"), (599, "server_error")],
)  # fmt: skip
def test_error_type_fits_the_status(status: int, kind: str) -> None:
    """Clients classify an error by its type."""
    assert RefusalError("no", status=status).build_error() == {
        "message": "no",
        "type": kind,
        "param": None,
        "code": None,
    }
