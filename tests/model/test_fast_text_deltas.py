"""Events that differ in their text only are read as a parser reads them."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.model.fast_text_deltas import MESSAGES_TEXT, TextEvents


class Parser:
    """Reads `{"id": ..., "delta": {"content": TEXT}}`, and counts how often it was asked."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, data: bytes) -> str | None:
        self.count += 1
        try:
            event = json.loads(data)
        except ValueError:
            return None
        delta = event.get("delta") if isinstance(event, dict) and event.keys() <= {"id", "delta"} else None
        text = delta.get("content") if isinstance(delta, dict) and len(delta) == 1 else None
        return text if isinstance(text, str) else None


def read(events: list[bytes]) -> tuple[list[str | None], int]:
    """The texts of these events as one answer, and how many parses they took."""
    parser, texts = Parser(), []
    answer = TextEvents(parser)
    for data in events:
        text = answer.find_text(data)
        if text is None:
            text = parser(data)
            if text is not None:
                answer.learn_shape(data, text)
        texts.append(text)
    return texts, parser.count


def written(text: str, **about: Any) -> bytes:
    return json.dumps({"id": "a", **about, "delta": {"content": text}}, ensure_ascii=False).encode()


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_similar_events_are_parsed_only_once(separators: tuple[str, str]) -> None:
    """The first of them, and the proof; then none, in both spellings of JSON."""
    words = ["It", " is", " ", "", "é你好", " x"] * 20
    events = [
        json.dumps({"id": "a", "delta": {"content": w}}, ensure_ascii=False, separators=separators) for w in words
    ]
    texts, parses = read([event.encode() for event in events])
    assert texts == words
    assert parses == 2


def test_different_first_event_requires_parsing_two_similar_events() -> None:
    """The first event shows a place that none of the others has, so two of those show theirs."""
    texts, parses = read([written("a", id="first"), *[written("b")] * 20])
    assert texts == ["a", *["b"] * 20]
    assert parses == 5


def test_confirming_event_with_the_same_text_proves_no_position() -> None:
    """Another place that has the same text by chance is not taken for that of the text."""
    about = [{"content": "x"}, {"content": "y"}]
    events = [written("x", id=id_) for id_ in (*about, *about)]
    assert read(events)[0] == ["x"] * 4


@pytest.mark.parametrize("text", ['"', "\\", 'a"b', "\n", "\x7f", "\u2028", 'x"},"delta":{"content":"y', "\\n"])
def test_text_with_escapes_is_read_without_parsing_its_event(text: str) -> None:
    """Its event is not parsed, nor are those behind it."""
    texts, parses = read([written(word) for word in ("a", "b", text, "c", text, "d")])
    assert texts == ["a", "b", text, "c", text, "d"]
    assert parses == 2


@pytest.mark.parametrize(
    "broken",
    [
        b'{"id": "a", "delta": {"content": "',
        b'{"id": "a", "delta": {"content": "}}',
        b'{"id": "a", "delta": {"content": "\xff"}}',
        b'{"id": "a", "delta": {"content": "a\nb"}}',
        b'{"id": "a", "delta": {"content": "\\"}}',
        b'{"id": "a", "delta": {"content": "a", "b": "c"}}',
    ],
)
def test_malformed_text_event_reads_as_none(broken: bytes) -> None:
    """Cut, not UTF-8, a control character, an open escape, another key."""
    assert read([written("a"), written("b"), broken, written("c")])[0] == ["a", "b", None, "c"]


def test_dissimilar_events_are_parsed_once_each() -> None:
    """Each has another id: it is parsed once, and 16 of them are looked at. The place of the first is proved."""
    texts, parses = read([written("a", id=str(number)) for number in range(100)])
    assert texts == ["a"] * 100
    assert parses == 101


TEXT = st.text('"\\content:{},x \n\u2028é') | st.text()
EVENTS = st.lists(
    st.builds(written, TEXT)
    | st.builds(written, TEXT, id=TEXT | st.just({"content": "x"}))
    | st.builds(lambda text: written(text).replace(b'"delta"', b'"content": "a", "delta"'), TEXT)
    | st.builds(
        lambda text, key: written(text)[:-2] + b', "%b": "b"}}' % key, TEXT, st.sampled_from([b"content", b"n"])
    )
    | st.builds(lambda text, at: written(text)[:at], TEXT, st.integers(0, 60)),
    max_size=12,
)


@given(EVENTS)
@example([written('"'), written('"'), written("a")])
@example([written("x", id={"content": "x"})] * 3 + [written("a", id={"content": "x"})])
def test_fast_deltas_match_the_texts_of_the_parser(events: list[bytes]) -> None:
    """Whatever comes before and behind them, whatever they hold."""
    assert read([event for event in events for _ in range(2)])[0] == [Parser()(e) for e in events for _ in range(2)]


@given(EVENTS)
def test_framed_event_is_read_like_its_data(events: list[bytes]) -> None:
    """An event in its frame is read as by itself, and two of them are not taken for one."""
    answer = TextEvents(Parser())
    for data in events:
        frame = b"data: %b\n\n" % data
        expected = answer.find_text(data)
        assert answer.find_text(frame, framed=True) == expected
        assert answer.find_text(frame + frame, framed=True) is None
        assert answer.find_text(frame[:-1], framed=True) is None
        if expected is None and (text := Parser()(data)) is not None:
            answer.learn_shape(data, text)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\0a\0", b"\r\r", b"a", b'"a"', b"\n\n", b"data: \n\n"])
def test_text_is_not_found_before_the_first_event_is_parsed(data: bytes) -> None:
    """Whatever it is: only the parser knows."""
    answer = TextEvents(Parser())
    assert answer.find_text(data) is None
    assert answer.find_text(data, framed=True) is None


def test_multi_line_data_is_never_read_as_a_framed_event() -> None:
    """The lines of one event have a field name each."""
    answer = TextEvents(Parser())
    data = b'{"id": "a",\n"delta": {"content": "a"}}'
    answer.learn_shape(data, "a")
    assert answer.find_text(data) == "a"
    assert answer.find_text(b"data: %b\n\n" % data, framed=True) is None


def test_events_of_another_api_are_read_by_their_own_key_and_line() -> None:
    """Those of Messages name their kind in a line in front of the data."""
    line = b"event: content_block_delta\ndata: "
    events = [b'{"index":0,"delta":{"type":"text_delta","text":"%b"}}' % word for word in (b"a", b"b", b"c")]
    parse = lambda data: json.loads(data)["delta"]["text"]  # noqa: E731
    answer = TextEvents(parse, key=MESSAGES_TEXT, line=line)
    answer.learn_shape(events[0], "a")
    assert [answer.find_text(line + event + b"\n\n", framed=True) for event in events] == ["a", "b", "c"]
    assert answer.find_text(b"data: " + events[1] + b"\n\n", framed=True) is None
    assert answer.find_text(events[1].replace(b'"index":0', b'"index":1')) is None
