"""What an upstream's error says, in the shapes in which servers were seen to write it."""

import pytest

from gateway.model.error_words import ErrorWords, is_error, parse_answer_error, parse_error_words

FASTAPI = (
    b'{"detail": [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required"}, {"msg": "Too long"}]}'
)
MISTRAL = b'{"object": "error", "message": {"detail": [{"loc": ["body", "n"], "msg": "extra"}]}, "code": null}'
GOOGLE = b'[{"error": {"code": 400, "message": "Bad contents.", "status": "INVALID_ARGUMENT"}}]'
OPENAI = (
    b'{"error": {"message": "Too much.", "type": "insufficient_quota", "param": null, "code": "insufficient_quota"}}'
)
PARAM = b'{"error": {"message": "Bad.", "param": "messages[0].role", "code": "unsupported_value"}}'
LLAMA = b'{"error": {"code": 400, "message": "the request exceeds", "type": "exceed_context_size_error", "n_ctx": 512}}'
VLLM = b'{"object": "error", "message": "The model\'s context length is 8.", "type": "BadRequestError", "code": 400}'


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"error": {"message": "No."}}', ErrorWords("No.")),
        (b'{"error": "No."}', ErrorWords("No.")),
        (OPENAI, ErrorWords("Too much.", "insufficient_quota", None, 429)),
        (PARAM, ErrorWords("Bad.", "unsupported_value", "messages[0].role")),
        (LLAMA, ErrorWords("the request exceeds", "context_length_exceeded", None, 400)),
        (VLLM, ErrorWords("The model's context length is 8.", "context_length_exceeded", None, 400)),
        *(
            (b'{"message": "%b"}' % words, ErrorWords(words.decode(), "context_length_exceeded", None, 400))
            for words in (
                b"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
                b"Please reduce the length of the messages or completion.",
                b"The number of tokens to keep from the initial prompt is greater than the context length.",
                b"invalid params, context window exceeds limit",
                b"Your request exceeded model token limit: 262144 (requested: 300000)",
                b"Input is too long for requested model.",
                b"This model's maximum prompt length is 131072 but the request contains 537812 tokens",
            )
        ),
        (FASTAPI, ErrorWords("messages: Field required; Too long")),
        (b'{"detail": "Not Found"}', ErrorWords("Not Found")),
        (b'{"detail": {"error": "No."}}', ErrorWords("No.")),
        (MISTRAL, ErrorWords("n: extra")),
        (GOOGLE, ErrorWords("Bad contents.", status=400)),
        (b'{"message": "No.", "code": "bad_model"}', ErrorWords("No.", "bad_model")),
        (b'{"Message": "No."}', ErrorWords("No.")),
        (b'{"msg": "No."}', ErrorWords("No.")),
        (b'{"errors": ["No.", {"message": "Nor this."}]}', ErrorWords("No.; Nor this.")),
        (b'{"errors": {"model": ["is unknown"]}}', ErrorWords("model: is unknown")),
        (
            b'{"type": "error", "error": {"type": "overloaded_error", "message": "Busy."}}',
            ErrorWords("Busy.", status=529),
        ),
        (b'{"title": "Gone", "detail": "No such model.", "status": 404}', ErrorWords("No such model.", status=404)),
        (b'{"fault": {"faultstring": "No quota."}}', ErrorWords("No quota.")),
        (b"upstream connect error\n", ErrorWords("upstream connect error")),
        (b"<html><body>No.</body></html>", ErrorWords()),
        (b'{"error": {"message": "cut of', ErrorWords()),
        (b'{"error": {"code": 7}}', ErrorWords()),
        (b"\x00\x01", ErrorWords()),
    ],
)
def test_upstream_error_message_code_and_parameter_are_extracted(content: bytes, words: ErrorWords) -> None:
    """Its message, and the code and parameter where it has them; what is a number is a status, and no code."""
    assert parse_answer_error(content) == words


def test_secret_is_removed_from_upstream_error_messages() -> None:
    """Also where the message is cut behind it."""
    said = {"error": {"message": "x" * 1995 + "sk-secret", "param": "sk-secret", "code": "sk-secret"}}
    words = parse_error_words(said, secret="sk-secret")
    assert "sk-" not in repr(words) and len(words.message) <= 2000 and words.code is None


def test_upstream_error_nesting_and_length_are_bounded() -> None:
    deep: object = "No."
    for _ in range(5000):
        deep = {"error": deep}
    assert parse_error_words(deep) == ErrorWords()
    assert len(parse_error_words({"errors": ["word"] * 10**6}).message) <= 2000


@pytest.mark.parametrize(
    ("event", "is_one"),
    [
        ({"error": "No."}, True),
        ({"object": "error", "message": "No."}, True),
        ({"detail": "No."}, True),
        ({"type": "error"}, True),
        ({"choices": [], "error": None}, False),
        ({"choices": [], "message": "hello"}, False),
        ({"type": "ping"}, False),
        ({"usage": {}}, False),
    ],
)
def test_event_without_choices_is_recognized_as_an_error(event: dict[str, object], is_one: bool) -> None:
    """It has no choices."""
    assert is_error(event) is is_one
