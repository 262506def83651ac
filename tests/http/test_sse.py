"""An event stream reads the same however it arrives."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.sse import EVENT_LIMIT_BYTES, EventError, EventReader, format_event

STREAM = (
    b'\xef\xbb\xbfdata: {"a":1}\n\n: comment\n\nevent: x\ndata: one\ndata:two\n\nid: 1\nretry: 3\n\ndata\n\n'
    b"data: crlf\r\n\r\ndata: cr\r\rdataset: no\n\ndata: \xe4\xb8\xad\n\ndata: [DONE]\n\n"
)
EVENTS = [b'{"a":1}', b"one\ntwo", b"", b"crlf", b"cr", "中".encode(), b"[DONE]"]


def test_event_stream_is_parsed_into_events() -> None:
    """Comments, ids and other fields say nothing; lines of one event are joined; any line end is one."""
    reader = EventReader()
    assert reader.feed(STREAM) == EVENTS


@given(st.sets(st.integers(0, len(STREAM))))
def test_event_stream_parses_the_same_for_any_split(cuts: set[int]) -> None:
    """Also between CR and LF, and within the byte order mark."""
    reader, found = EventReader(), []
    edges = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(edges):
        found += reader.feed(STREAM[start:end])
    assert found == EVENTS


def as_the_standard_reads(stream: bytes) -> list[bytes]:
    """The data of each event, line by line."""
    events, values = [], list[bytes]()
    for line in re.split(rb"\r\n|\n|\r", stream):
        name, _, value = line.partition(b":")
        if not line:
            events += [b"\n".join(values)] if values else []
            values = []
        elif name == b"data":
            values.append(value.removeprefix(b" "))
    return events


BLOCKS = st.sampled_from(
    [
        *(b"data: one\n\n", b"data: two\ndata: three\n\n", b": ping\n\n", b"data: x\r\n\r\n", b"data:\r\r", b"\n"),
        *(
            b"event: a\ndata: four\n\n",
            b"event: b\ndata: event: b\n\n",
            b"event: c\n\n",
            b"event: d\nid: 1\ndata: e\n\n",
        ),
    ]
)


@given(st.lists(BLOCKS, max_size=12), st.sets(st.integers(0, 200)))
def test_event_stream_parser_matches_the_standard(blocks: list[bytes], cuts: set[int]) -> None:
    """Long runs of events of one line, and of a name and a line, are read in quicker ways, which must not show."""
    stream = b"".join(blocks)
    reader, found = EventReader(), []
    for start, end in pairwise([0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]):
        found += reader.feed(stream[start:end])
    assert found == as_the_standard_reads(stream)


def test_written_event_is_parsed_back() -> None:
    """One event, at once."""
    assert EventReader().feed(format_event(b'{"b":2}')) == [b'{"b":2}']


def test_an_event_that_was_cut_is_not_read() -> None:
    """It is never taken for a whole one."""
    reader = EventReader()
    assert reader.feed(b"data: one\n\ndata: tw") == [b"one"]


def test_an_endless_event_is_refused() -> None:
    """Memory is bounded, and reading it takes linear time."""
    reader = EventReader()
    for _ in range(EVENT_LIMIT_BYTES // 65536):
        reader.feed(b"x" * 65536)
    with pytest.raises(EventError):
        reader.feed(b"x")
