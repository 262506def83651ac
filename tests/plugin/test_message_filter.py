"""The texts of requests and answers: which ones there are, and in what order an answer goes on."""

import asyncio
from collections.abc import Sequence

from gateway.aio.cooperative import Work, run_at_once
from gateway.dialects.document_texts import build_text_url
from gateway.plugin import Chunk, Emit, Json, Reply
from gateway.plugin.message_filter import (
    AnswerEndedByRule,
    change_arguments,
    change_body,
    change_value,
    screen_reply,
)
from gateway.plugin.stream_redactor import PIECE_CHARS


class Shouting:
    """A filter that holds back the last character."""

    ended: str | None = None

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        text = self._held + text
        self._held = text[-1:]
        self.ended = "stop" if "!" in text else None
        return text[:-1].upper()

    def finish(self) -> str:
        return self._held.upper()


def shout(text: str) -> Work[str]:
    yield
    return text.upper()


def answered(chunks: Sequence[Chunk], **settings: bool) -> list[Chunk]:
    async def stream(emit: Emit) -> None:
        for chunk in chunks:
            emit(chunk)

    async def release() -> None:
        """Nothing is open."""

    def calls(fields: Json) -> Work[Json]:
        yield
        return {**fields, "seen": True}

    told: list[Chunk] = []
    reply = screen_reply(Reply(stream, release), Shouting, calls, over=shout, **settings)
    try:
        asyncio.run(reply.stream(told.append))  # type: ignore[arg-type]
    except AnswerEndedByRule as ended:
        told.append(f"ended by {ended.rule}")
    return told


def delta(fields: Json, finish: str | None = None) -> Json:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def test_held_text_is_sent_before_the_finish_reason() -> None:
    assert answered(["ab", "c", delta({}, "stop")]) == ["A", "B", delta({"content": "C"}, "stop")]
    assert answered(["ab"]) == ["A", {"choices": [{"index": 0, "delta": {"content": "B"}}]}]


def test_message_fields_are_filtered_separately() -> None:
    """Ids and signatures stay; any other value goes through `over`; further choices are nobody's."""
    chunks: list[Chunk] = [
        delta(
            {
                "role": "assistant",
                "reasoning": "ab",
                "content": [{"type": "text", "text": "xy"}, {"type": "image", "alt": "a"}],
            }
        ),
        {"choices": [{"index": 1, "delta": {"content": "second"}}]},
        {"choices": [], "usage": {"total_tokens": 3}},
        delta({"annotations": [{"title": "t", "url": "u"}]}, "stop"),
    ]
    assert answered(chunks) == [
        delta(
            {
                "role": "assistant",
                "reasoning": "A",
                "content": [{"type": "text", "text": "X"}, {"TYPE": "image", "ALT": "A"}],
            }
        ),
        {"choices": []},
        {"choices": [], "usage": {"total_tokens": 3}},
        delta({"annotations": [{"TITLE": "T", "URL": "u"}], "content": "Y", "reasoning": "B"}, "stop"),
    ]


def test_tool_calls_are_emitted_once_complete() -> None:
    first = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
    pieces = first, {"index": 0, "function": {"arguments": "}"}}
    told = answered([*(delta({"tool_calls": [piece]}) for piece in pieces), delta({}, "tool_calls")])
    whole = {**first, "function": {"name": "f", "arguments": "{}"}}
    assert told == [delta({}), delta({}), delta({"tool_calls": [whole], "seen": True}, "tool_calls")]


def test_null_tool_name_in_later_chunks_keeps_the_call() -> None:
    """Some servers send null for the name with each further piece of the arguments."""
    pieces = {"name": "f", "arguments": "{"}, {"name": None, "arguments": "}"}, {"name": None, "arguments": None}
    whole = {"name": "f", "arguments": "{}"}
    calls = [delta({"tool_calls": [{"index": 0, "function": piece}]}) for piece in pieces]
    ended = delta({"tool_calls": [{"index": 0, "function": whole}], "seen": True}, "tool_calls")
    assert answered([*calls, delta({}, "tool_calls")])[-1] == ended
    older = [delta({"function_call": piece}) for piece in pieces]
    ended = delta({"function_call": whole, "seen": True}, "function_call")
    assert answered([*older, delta({}, "function_call")])[-1] == ended


def test_ending_filter_ends_the_answer_with_its_rule() -> None:
    assert answered(["ab", "c!", "d"]) == ["A", "BC", "ended by stop"]
    assert answered([delta({"content": "ab!"}, "stop")]) == [delta({"content": "AB"}), "ended by stop"]


def test_shadow_filter_passes_the_answer_unchanged() -> None:
    assert answered(["ab", delta({}, "stop")], shadow=True) == ["ab", delta({}, "stop")]


def test_every_text_in_a_message_is_filtered() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": '{"a": "\\u0062", "n": 1, "ok": true}'}}
    message = {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}], "tool_calls": [call]}
    body = run_at_once(change_body({"messages": [message, {"role": "user", "content": "y"}, None]}, shout))
    assert body["messages"] == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "X"}, {"type": "image_url"}],
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"A":"B","N":1,"OK":true}'}}],
        },
        {"role": "user", "content": "Y"},
        None,
    ]
    assert run_at_once(change_body({"messages": 5}, shout)) == {"messages": 5}


def test_every_text_in_a_request_is_filtered() -> None:
    """Names, words of the API, data and numbers stay; with `names`, only data and words do."""
    tool = {"name": "f", "description": "d", "parameters": {"properties": {"p": {"type": "string", "enum": ["e"]}}}}
    body: Json = {
        "model": "m",
        "stop": ["s"],
        "seed": 3,
        "metadata": {"k": "v"},
        "user": "u",
        "tools": [{"type": "function", "function": tool}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "prediction": {"type": "content", "content": "c"},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "description": "d"}},
        "messages": [
            {"role": "user", "name": "ann", "content": [{"type": "file", "file": {"filename": "x", "file_data": "y"}}]},
            {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "t"}}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:a", "detail": "low"}}]},
            {"role": "tool", "name": "f", "tool_call_id": "i", "content": "r"},
        ],
    }
    seen: list[str] = []

    def look(text: str) -> Work[str]:
        yield
        seen.append(text)
        return text.upper()

    told = run_at_once(change_body(body, look))
    assert seen == ["u", "s", "k", "v", "d", "e", "c", "d", "ann", "x", "t", "r"]
    assert [*told] == [*body] and told["metadata"] == {"K": "V"}
    assert told["tools"][0]["function"] == {
        "name": "f",
        "description": "D",
        "parameters": {"properties": {"p": {"type": "string", "enum": ["E"]}}},
    }
    seen.clear()
    run_at_once(change_body(body, look, names=True))
    assert seen == [*"uskvfdpefcnd", "ann", "x", "t", "f", "i", "r"]


def test_text_in_a_file_is_filtered() -> None:
    """A document that is plain text comes so from clients of Messages; other files stay as they are."""
    pdf = "data:application/pdf;base64,JVBE"
    urls = [build_text_url("Ann"), build_text_url("ANN"), pdf]
    parts = [{"type": "file", "file": {"file_data": url}} for url in urls]
    body = run_at_once(change_body({"messages": [{"role": "user", "content": parts}]}, shout))
    told = [part["file"]["file_data"] for part in body["messages"][0]["content"]]
    assert told == [build_text_url("ANN"), urls[1], pdf]


def test_thoughts_are_filtered_across_their_pieces() -> None:
    """In both fields that have them, and in front of what follows."""
    about = {"type": "reasoning.text", "index": 0}
    pieces = [delta({"reasoning_content": t, "reasoning_details": [{**about, "text": t}]}) for t in ("ab", "cd")]
    told = answered([*pieces, "so", delta({}, "stop")])
    details = [
        entry["text"]
        for chunk in told
        if not isinstance(chunk, str)
        for entry in chunk["choices"][0]["delta"].get("reasoning_details", ())
    ]
    assert details == ["A", "BC", "D"]
    behind = [chunk if isinstance(chunk, str) else chunk["choices"][0]["delta"].get("content") for chunk in told]
    assert behind == [None, None, "S", "O"]
    blocks = [delta({"thinking_blocks": [{"type": "thinking", "thinking": text}]}) for text in ("ab", "cd")]
    told = answered([*blocks, delta({}, "stop")])
    shown = [chunk["choices"][0]["delta"]["thinking_blocks"] for chunk in told if not isinstance(chunk, str)]
    assert "".join(block["thinking"] for blocks in shown for block in blocks) == "ABCD"
    signed = delta({"reasoning_details": [{**about, "text": "ab", "signature": "s"}]}, "stop")
    (last,) = answered([signed])
    assert not isinstance(last, str)
    assert last["choices"][0]["delta"] == {"reasoning_details": [{**about, "text": "AB"}]}
    assert answered([delta({"reasoning_details": [{**about, "text": "a!"}]}, "stop")])[-1] == "ended by stop"


def test_long_answer_pieces_keep_their_order() -> None:
    """What comes while a long piece is under way waits for it, also where nobody awaits the pause."""
    long = "x" * (3 * PIECE_CHARS)
    told = answered(["ab", long, "c", delta({"content": long}, "stop")])
    assert "".join(c if isinstance(c, str) else c["choices"][0]["delta"]["content"] for c in told) == (
        f"AB{long.upper()}C{long.upper()}"
    )


def test_arguments_without_findings_stay_unchanged() -> None:
    def same(text: str) -> Work[str]:
        yield
        return "one" if text == "1" else text

    assert run_at_once(change_arguments('{ "a" : 2 }', same)) == '{ "a" : 2 }'
    assert run_at_once(change_arguments("no json", shout)) == "NO JSON"
    assert run_at_once(change_arguments('{"a": "\\u0062\\ud83d', shout)) == '{"A": "B\\UD83D'
    assert run_at_once(change_arguments('{"a": "\\u0062', same)) == '{"a": "\\u0062'
    assert run_at_once(change_value({"a": [1, 2.5, None, True]}, same)) == {"a": ["one", 2.5, None, True]}
