"""Messages behind the seam: hostile input, and the cost of long conversations."""

import sys
from collections.abc import Callable
from types import FrameType

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.messages.dialect import DIALECT

from .requests import build_body, parse

ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "content", "text"]), inner),
    max_leaves=6,
)
TYPES = ("text", "image", "document", "search_result", "tool_use", "tool_result", "thinking", "redacted_thinking")
OF_BLOCKS = ("text", "source", "content", "id", "input", "name", "tool_use_id", "thinking", "data", "server_name")
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from([*TYPES, "mcp_tool_use", "mcp_tool_result", "odd"])},
    optional=dict.fromkeys(OF_BLOCKS, ODD),
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.lists(BLOCKS, max_size=3) | ODD}
)
FIELDS = st.dictionaries(
    st.sampled_from(
        ["system", "tools", "tool_choice", "mcp_servers", "metadata", "thinking", "output_config", "stream"]
    ),
    ODD | st.lists(BLOCKS, max_size=2),
    max_size=3,
)


@given(messages=st.lists(MESSAGES, max_size=3) | ODD, fields=FIELDS)
def test_odd_request_is_read_or_refused(messages: object, fields: Json) -> None:
    """With an error of the client's, whatever it is."""
    outcome: int | bytes
    try:
        outcome = orjson.dumps(DIALECT.parse(orjson.dumps(build_body(messages, **fields)), needs_model=False).body)
    except GatewayError as error:
        outcome = error.facts.status
    assert isinstance(outcome, bytes) or outcome == 400


@pytest.mark.parametrize("content", [b"", b"[]", b"5", b'{"messages":', b"\xff", b'{"a":' * 300 + b"1" + b"}" * 300])
def test_body_that_is_no_object_is_refused(content: bytes) -> None:
    """As JSON that cannot be read."""
    with pytest.raises(GatewayError) as caught:
        DIALECT.parse(content, needs_model=False)
    assert caught.value.code == "invalid_json"


def count_lines(work: Callable[[], object]) -> int:
    """The lines of Python that are executed."""
    n_lines = 0

    def trace(frame: FrameType, event: str, _argument: object) -> object:
        nonlocal n_lines
        n_lines += event == "line"
        del frame
        return trace

    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        work()
    finally:
        sys.settrace(None)
    return n_lines


@pytest.mark.parametrize("kind", ["blocks", "messages", "rounds"])
def test_long_conversation_costs_its_length(kind: str) -> None:
    """Ten times as many blocks, messages or rounds of calls, ten times as many lines."""

    def build(n: int) -> Json:
        text = {"type": "text", "text": "x"}
        if kind == "blocks":
            return build_body([{"role": "user", "content": [text] * n}])
        if kind == "messages":
            return build_body([{"role": "user", "content": "x"}, {"role": "assistant", "content": [text]}] * n)
        use = [{"type": "tool_use", "id": "t", "name": "n", "input": {}}]
        result = [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]
        return build_body([{"role": "assistant", "content": use}, {"role": "user", "content": result}] * n)

    few, many = (count_lines(lambda n=n: parse(build(n)["messages"])) for n in (1000, 10_000))  # type: ignore[misc]
    assert many < 10.5 * few


def test_large_request_is_read_whole() -> None:
    """Ten megabytes in ten thousand blocks."""
    asked = parse([{"role": "user", "content": [{"type": "text", "text": "x" * 1024}] * 10_000}])
    assert len(asked.body["messages"][0]["content"]) == 10_000
