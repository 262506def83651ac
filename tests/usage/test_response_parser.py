"""The usage in answers of real shapes, in hostile ones, and in those whose middle was not kept."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from usage.shapes import (
    AZURE,
    CHAT,
    COMPLETION,
    EMBEDDINGS,
    MESSAGE,
    RERANK,
    RESPONSE,
    USAGE,
    chat_stream,
    events,
    message_stream,
    response_stream,
    text,
)

from gateway.usage.response_parser import SHORT_BYTES, AnswerFacts, estimate_stream_tokens, parse_stream, parse_whole
from gateway.usage.ring_buffer import AnswerBuffer
from gateway.usage.tokens import TokenCounts

WHOLE = {
    "chat": (CHAT, AnswerFacts(TokenCounts(19, 4, 0, 10, 3), "gpt-4.1-2025-04-14")),
    "azure": (AZURE, AnswerFacts(TokenCounts(19, 0, 0, 10), "gpt-4o-2024-11-20")),
    "completion": (COMPLETION, AnswerFacts(TokenCounts(19, 0, 0, 10), "m")),
    "response": (RESPONSE, AnswerFacts(TokenCounts(36, 6, 0, 87, 5), "gpt-4.1-2025-04-14")),
    "message": (MESSAGE, AnswerFacts(TokenCounts(125, 20, 10, 12), "claude-sonnet-4-20250514")),
    "embeddings": (EMBEDDINGS, AnswerFacts(TokenCounts(8), "text-embedding-3-small")),
    "rerank": (RERANK, AnswerFacts(TokenCounts(15), "jina-reranker-v2")),
}
STREAMS = {
    "chat": (chat_stream("Hel", "lo", usage=CHAT["usage"]), AnswerFacts(TokenCounts(19, 4, 0, 10, 3), "gpt-4.1")),
    "vllm": (chat_stream("a", "b", "c", always=True), AnswerFacts(TokenCounts(19, 0, 0, 3), "gpt-4.1")),
    "response": (response_stream("Hel", "lo"), AnswerFacts(TokenCounts(36, 6, 0, 87, 5), "gpt-4.1-2025-04-14")),
    "message": (message_stream("Hel", "lo"), AnswerFacts(TokenCounts(125, 20, 10, 12), "claude-sonnet-4-20250514")),
    "message that says all at its end": (
        message_stream("a", told={"input_tokens": 96, "cache_read_input_tokens": 20, "output_tokens": 7}),
        AnswerFacts(TokenCounts(126, 20, 10, 7), "claude-sonnet-4-20250514"),
    ),
    "no usage": (chat_stream("a", "b"), AnswerFacts(None, "gpt-4.1")),
}

CHAT_CHUNK = {"choices": [{"index": 0, "delta": {"content": "Hello!"}}]}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(("answer", "said"), WHOLE.values(), ids=WHOLE)
def test_parser_reads_usage_of_whole_answers(answer: object, said: AnswerFacts, indent: int | None) -> None:
    """However they are spaced."""
    body = text(answer, indent=indent)
    assert parse_whole(body) == said


@pytest.mark.parametrize(("answer", "said"), WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("where", ["choices", "output", "content", "data", "results"])
def test_parser_reads_usage_of_long_answer_without_its_middle(
    answer: dict[str, object], said: AnswerFacts, where: str
) -> None:
    """Usage and model are proved by what stands before or behind them, wherever the long part is."""
    if where not in answer:
        return
    inner = answer[where]
    assert isinstance(inner, list)
    body = text({**answer, where: [*inner, {"filling": '\\"usage": {' * 20_000, "usage": USAGE}]})
    assert len(body) > 100_000
    assert parse_whole(body[:4096], body[-16384:]) == said
    assert parse_whole(body) == said


@pytest.mark.parametrize(("stream", "said"), STREAMS.values(), ids=STREAMS)
def test_parser_reads_usage_of_streams(stream: bytes, said: AnswerFacts) -> None:
    """The last word counts; the beginning says the model, and Anthropic's input."""
    assert parse_stream(stream) == said
    for end in (b"\r\n", b"\r"):
        assert parse_stream(stream.replace(b"\n", end)) == said
    last = stream.replace(b"data: [DONE]\n\n", b"").rstrip()
    for end in (b"", b"\n"):  # nothing closes the last event
        assert parse_stream(last + end) == said
    commented = b": keep-alive\n\n" + stream + b": done\n\n"
    assert parse_stream(commented) == said


@pytest.mark.parametrize(("stream", "said"), STREAMS.values(), ids=STREAMS)
def test_parser_reads_usage_of_long_stream_without_its_middle(stream: bytes, said: AnswerFacts) -> None:
    """The first events, and the last ones."""
    filling = events({"type": "x", "delta": {"content": '"usage": {"prompt_tokens": 7}' * 100}}) * 100
    first = stream.index(b"\n\n") + 2
    long = stream[:first] + filling + stream[first:]
    for end in (b"\n", b"\r\n", b"\r"):
        ended = long.replace(b"\n", end)
        assert parse_stream(ended[:4096], ended[-16384:]) == said


@pytest.mark.parametrize("more", [0, 1, 60])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_parser_finds_usage_before_many_trailing_events(more: int, end: bytes) -> None:
    """They may be so many that the usage is not near the end."""
    stream = chat_stream("Hel", "lo", usage=CHAT["usage"]) + events({"type": "x", "filling": "y" * 100}) * more
    assert parse_stream(stream.replace(b"\n", end)) == AnswerFacts(TokenCounts(19, 4, 0, 10, 3), "gpt-4.1")


def test_usage_is_found_in_a_truncated_final_event() -> None:
    """A Response repeats its tools: its usage is one level deeper than the event, and nothing else is."""
    tool = {"parameters": {"usage": {"input_tokens": 1, "output_tokens": 1}, "filling": "x" * 50}}
    long = response_stream("a", response={**RESPONSE, "tools": [tool] * 1000})
    assert parse_stream(long[:4096], long[-8192:]).tokens == TokenCounts(36, 6, 0, 87, 5)
    without = {key: value for key, value in RESPONSE.items() if key != "usage"}
    long = response_stream("a", response={**without, "tools": [tool] * 1000})
    assert parse_stream(long[:4096], long[-8192:]).tokens is None


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_parser_reads_image_event_usage_at_top_level_only(end: bytes) -> None:
    """And nothing deeper is one."""
    told = {"input_tokens": 50, "output_tokens": 4000, "total_tokens": 4050}
    image = {"type": "image_generation.completed", "b64_json": "A" * 50_000, "size": "1024x1024"}
    long = events({"type": "image_generation.partial_image", "b64_json": "A" * 9000}, {**image, "usage": told})
    long = long.replace(b"\n", end)
    assert parse_stream(long[:4096], long[-8192:]).tokens == TokenCounts(50, 0, 0, 4000)
    deeper = events({**image, "image": {"size": 1, "usage": told}}).replace(b"\n", end)
    assert parse_stream(deeper[:4096], deeper[-8192:]).tokens is None


def test_parser_reads_partial_usage_of_a_cut_message_stream() -> None:
    """Its output is what came until then."""
    stream = message_stream("Hel", "lo", ends=False)
    assert parse_stream(stream) == AnswerFacts(TokenCounts(125, 20, 10, 1), "claude-sonnet-4-20250514", partial=True)


ODD = {
    "half of a pair": (b"Hello!", rb"Hello \ud83d"),
    "the other half": (b"Hello!", rb"\uDE00 hello"),
    "a cut character": (b"Hello!", b"Hello \xf0\x9f"),
    "not a number": (b'"index": 0', b'"index": NaN'),
    "infinity": (b'"index": 0', b'"index": -Infinity'),
}


@pytest.mark.parametrize(("plain", "odd"), ODD.values(), ids=ODD)
@pytest.mark.parametrize("filling", ["", "x" * SHORT_BYTES])
def test_parser_reads_usage_beside_invalid_surrogates(plain: bytes, odd: bytes, filling: str) -> None:
    """Such as an emoji that `max_tokens` cut: its answer says its tokens as any other, wherever that stands."""
    orders = (CHAT, dict(reversed(CHAT.items())), {**CHAT, "choices": [{"usage": USAGE}, *CHAT["choices"]]})  # type: ignore[misc]
    for answer in orders:
        body = text({"filling": filling, **answer}).replace(plain, odd)
        assert odd in body and parse_whole(body) == WHOLE["chat"][1]
    response = {**RESPONSE, "output": [{"index": 0, "text": "Hello!" + filling}]}
    stream = response_stream("Hello!", response=response).replace(plain, odd)
    assert parse_stream(stream) == STREAMS["response"][1]
    assert estimate_stream_tokens(events(CHAT_CHUNK).replace(plain, odd), None, 100) >= 1


HOSTILE = {
    "in a text": {"choices": [{"message": {"content": '","usage":{"prompt_tokens":7}}'}}]},
    "in a key": {'",x"usage': {"prompt_tokens": 7}, 'x,\\"usage': USAGE},
    "below": {"x": {"usage": USAGE}, "y": [{"usage": USAGE}]},
    "a text": {"usage": json.dumps(USAGE)},
    "a list": {"usage": [USAGE]},
    "texts for numbers": {"usage": {"prompt_tokens": "7", "completion_tokens": "8"}},
    "negative": {"usage": {"prompt_tokens": -7}},
}


@pytest.mark.parametrize("filling", ["", "x" * SHORT_BYTES])
@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_usage_lookalikes_in_the_answer_are_ignored(answer: dict[str, object], filling: str) -> None:
    """Not even where it looks like one."""
    for body in (text({"filling": filling, **answer}), text({**answer, "filling": filling})):
        assert parse_whole(body).tokens is None
        assert parse_whole(body[:1000], body[-5000:]).tokens is None
    stream = events({"filling": filling, **answer}, done=True)
    assert parse_stream(stream).tokens is None


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"usage"', b'{"usage":{"prompt_tokens":1e400}}', b"\xff\x00", b"no"]
)
def test_malformed_answer_body_yields_no_usage(body: bytes) -> None:
    """It is estimated."""
    assert parse_whole(body) == AnswerFacts()
    assert parse_stream(body) == AnswerFacts()


def test_parser_does_not_parse_answers_with_too_many_values() -> None:
    """A whole answer of 600,000 lists is not parsed; its beginning and its end are."""
    many = b"[" + b"[]," * 300_000 + b"[]]"
    assert parse_whole(b'{"x":%b,"usage":{"prompt_tokens":3},"y":%b}' % (many, many)).tokens is None
    assert parse_whole(b'{"usage":{"prompt_tokens":3},"x":%b}' % many).tokens == TokenCounts(3)
    body = b'{"x":%b,"model":"m","usage":{"prompt_tokens":3}}' % many
    assert parse_whole(body[:4096], body[-4096:]) == parse_whole(body) == AnswerFacts(TokenCounts(3), "m")


def test_invalid_model_name_is_dropped_from_answer_facts() -> None:
    """It would be a label of metrics and a row of the store."""
    for model in ("x" * 201, "a\nb", "\x1b[0m"):
        body = text({"model": model, "usage": USAGE})
        assert parse_whole(body) == AnswerFacts(TokenCounts(19, 0, 0, 10), "")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='ab\\"{}[],:usage'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["usage", "model", "a", "b"]), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["a", "usage", "b", "model", "c"]), json_values), st.integers(1, 400))
def test_truncated_answer_yields_the_full_answers_usage_or_none(answer: dict[str, object], kept: int) -> None:
    """Or nothing; never the usage of something else."""
    if "usage" in answer:
        answer["usage"] = {"prompt_tokens": 77, "x": answer["usage"]}
    body = text({**answer, "last": {"usage": {"prompt_tokens": 5}}})
    whole = parse_whole(body)
    assert whole.tokens == (TokenCounts(77) if "usage" in answer else None)
    part = parse_whole(body[:kept], body[-kept:])
    assert part.tokens in (None, whole.tokens)


@pytest.mark.parametrize(
    ("stream", "tokens"),
    [
        (chat_stream("abcd", "efghijkl"), 3),
        (chat_stream("a", "b"), 2),
        (chat_stream("", ""), 0),
        (chat_stream("abcd" * 1000) + b": keep-alive\n\n" * 400, 1000),
        (events({"choices": [{"index": i, "delta": {"content": t}} for i, t in enumerate(("abcdefgh", "a", ""))]}), 3),
        (response_stream("abcdefgh")[: response_stream("abcdefgh").index(b"event: response.completed")], 2),
        (events({"choices": [{"text": "abcdefgh"}]}), 2),
        (events({"choices": [{"delta": {"tool_calls": [{"id": "x", "function": {"arguments": "{}{}{}{}"}}]}}]}), 2),
        (events({"delta": {"type": "text_delta", "text": "abcdefgh"}}), 2),
        (b"", 0),
        (b"data: no json\n\n", 0),
    ],
)
def test_text_tokens_are_estimated_at_four_bytes_each(stream: bytes, tokens: int) -> None:
    """Four bytes of text are a token, and an event with a text is at least one."""
    assert estimate_stream_tokens(stream, None, len(stream)) == tokens


def test_long_stream_token_estimate_scales_with_its_length() -> None:
    """Within a few percent where all events are alike."""
    stream = chat_stream(*["word and word"] * 1000)
    for head, tail in ((stream, None), (stream[:4096], stream[-20_000:])):
        assert 3200 <= estimate_stream_tokens(head, tail, len(stream)) <= 3300
    assert estimate_stream_tokens(b"x", b"no event", 9) == 0
    assert estimate_stream_tokens(b"x", b"no event", 90) == 21


EMPTY = chat_stream(*[""] * 200)[: -len("data: [DONE]\n\n")]


def test_token_estimate_uses_stream_start_when_end_has_no_text() -> None:
    """That of the beginning stands for it, and if there is none, all that is missing may be text."""
    stream = chat_stream(*["word and word"] * 1000)[: -len("data: [DONE]\n\n")] + EMPTY
    assert estimate_stream_tokens(stream[:4096], EMPTY, len(stream)) >= 3250
    assert 800 <= estimate_stream_tokens(chat_stream("abcd" * 1000, *[""] * 400), None, 0) <= 1200
    assert estimate_stream_tokens(chat_stream("abcd", *[""] * 400), None, 0) >= 1
    stream = EMPTY + chat_stream("x" * 100_000) + EMPTY
    assert estimate_stream_tokens(EMPTY[:4096], EMPTY, len(stream)) >= 25_000


def in_order(*, instructions: int, tools: int, output: int, **more: object) -> dict[str, object]:
    """A Response with its fields in OpenAI's order, and a client's words where it may write them."""
    tool = {"type": "function", "name": "model", "parameters": {"model": "cheap", "x": "y" * 400}}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": '","model":"cheap"' * (instructions // 20),
        "max_output_tokens": None,
        "model": "gpt-4.1",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "o" * output}]}] if output else [],
        "parallel_tool_calls": True,
        "tools": [tool] * tools,
        "truncation": "disabled",
        "usage": {"input_tokens": 20_000, "output_tokens": 1000},
        "user": None,
        "metadata": {"model": "cheap", "usage": "x"},
        **more,
    }


LENGTHS = [
    (100, 1, 100),
    (3000, 60, 100),
    (10_000, 1, 100),
    (20_000, 60, 2000),
    (10_000, 120, 2000),
    (20_000, 1, 40_000),
]


@pytest.mark.parametrize(("instructions", "tools", "output"), LENGTHS)
def test_parser_finds_response_model_behind_long_instructions(instructions: int, tools: int, output: int) -> None:
    """In a stream and in a whole one, of which no more is kept than needed; never the model that a client wrote."""
    response = in_order(instructions=instructions, tools=tools, output=output)
    said = AnswerFacts(TokenCounts(20_000, 0, 0, 1000), "gpt-4.1")
    for body, read in ((response_stream("a", "b", response=response), parse_stream), (text(response), parse_whole)):
        kept = AnswerBuffer()
        for start in range(0, len(body), 1000):
            kept.keep_piece(body[start : start + 1000])
        assert read(*kept.get_ends()) == said


@pytest.mark.parametrize("gone", [True, False])
def test_parser_reads_model_from_any_stream_event(gone: bool) -> None:
    """Azure's first chunk has an empty name; an answer that is all over may begin with comments."""
    first = {"choices": [], "model": "", "prompt_filter_results": []}
    comments = b": PROCESSING\n\n" * 400
    stream = comments + events(first) + chat_stream("a", "b", usage=USAGE, model="gpt-4.1")
    assert parse_stream(stream) == AnswerFacts(TokenCounts(19, 0, 0, 10), "gpt-4.1")
    without = comments + chat_stream("a", "b", model="gpt-4.1")
    assert parse_stream(*((comments[:4096], without[-500:]) if gone else (without,))) == AnswerFacts(None, "gpt-4.1")


def test_parser_reads_usage_before_chunks_without_usage() -> None:
    stream = chat_stream("a", usage=USAGE)[: -len("data: [DONE]\n\n")] + EMPTY
    assert parse_stream(stream).tokens == TokenCounts(19, 0, 0, 10)
