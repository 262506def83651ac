"""A request as it is read: its items, what it goes on with, and bodies that are none."""

import json
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.responses.conversation import resolve_request
from gateway.dialects.responses.request import parse_compaction, parse_request, parse_request_body

from .requests import CALL, FUNCTION, HI, OUTPUT, QUESTION, opened, refusal, request
from .test_fields import WRONG


def refused(content: bytes, *, needs_model: bool = True) -> tuple[str, str | None]:
    with pytest.raises(GatewayError) as caught:
        parse_request(content, needs_model=needs_model)
    return caught.value.code, caught.value.param


@pytest.mark.parametrize("content", [b"", b"[]", b'{"input": NaN}', b'{"x": ' + b"[" * 500 + b"]" * 500 + b"}"])
def test_non_object_body_is_refused_as_invalid_json(content: bytes) -> None:
    assert refused(content) == ("invalid_json", None)


def test_text_input_becomes_a_user_message() -> None:
    found = parse_request(b'{"model": "m", "input": "Hi"}', needs_model=True)
    assert found.input == (HI,) and found.fields == {"model": "m"}


def test_request_options_have_their_defaults() -> None:
    found = request()
    assert (found.streams, found.stores, found.background, found.include) == (False, True, False, ())
    assert (found.previous_response_id, found.conversation_id, found.references) == (None, None, ())


def test_continuation_and_option_fields_are_parsed() -> None:
    assert request(previous_response_id="resp_1").previous_response_id == "resp_1"
    assert request(conversation="conv_1").conversation_id == "conv_1"
    assert request(conversation={"id": "conv_1"}).conversation_id == "conv_1"
    found = request(stream=True, store=False, include=["reasoning.encrypted_content"])
    assert (found.streams, found.stores, found.include) == (True, False, ("reasoning.encrypted_content",))


def test_item_references_are_parsed_with_their_places() -> None:
    found = request(HI, {"type": "item_reference", "id": "msg_1"}, {"id": "msg_2"}, {"type": None, "id": "msg_3"})
    assert found.references == (("input[1]", "msg_1"), ("input[2]", "msg_2"), ("input[3]", "msg_3"))


@pytest.mark.parametrize("value", [None, "", []])
def test_missing_input_is_accepted_only_with_an_earlier_conversation(value: object) -> None:
    assert refusal(input=value).param == "input"
    assert request(input=value, previous_response_id="resp_1").input == ()
    assert request(input=value, conversation="conv_1").input == ()


def test_a_model_is_needed_unless_the_configuration_names_one() -> None:
    assert refused(b'{"input": "Hi"}') == ("missing_field", "model")
    assert refused(b'{"input": "Hi", "model": ""}') == ("missing_field", "model")
    assert parse_request(b'{"input": "Hi"}', needs_model=False).fields == {}


def test_instructions_are_text_or_messages() -> None:
    assert [item["role"] for item in request(instructions="Be brief.").instructions] == ["system"]
    items = [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]
    assert [item["content"] for item in request(instructions=items).instructions] == ["a", "b"]
    assert refusal(instructions=[{"role": "robot", "content": ""}]).param == "instructions[0].role"
    assert refusal(instructions=[HI, CALL]).param == "instructions[1].type"


def test_parsed_object_is_accepted_as_a_request_body() -> None:
    """A message of a WebSocket has further fields, which its page takes out."""
    assert parse_request_body({"model": "m", "input": "Hi"}, needs_model=True).input == (HI,)


def test_a_compaction_needs_a_model_and_has_few_fields() -> None:
    found = parse_compaction(
        b'{"model": "m", "input": [{"role": "user", "content": "Hi"}], "instructions": "Be brief."}'
    )
    assert found.input == (HI,) and found.fields["model"] == "m"
    for body, code, param in (
        ({"input": "Hi"}, "missing_field", "model"),
        ({"model": None, "input": "Hi"}, "missing_field", "model"),
        ({"model": "m"}, "missing_field", "input"),
        ({"model": "m", "input": "Hi", "tools": []}, "unknown_parameter", "tools"),
        ({"model": "m", "input": 5}, "invalid_field", "input"),
    ):
        with pytest.raises(GatewayError) as caught:
            parse_compaction(json.dumps(body).encode())
        assert (caught.value.code, caught.value.param) == (code, param)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
_NAMES = sorted(
    WRONG.keys()
    | {"type", "role", "content", "id", "call_id", "name", "arguments", "output", "summary", "action", "operation"}
    | {"server_label", "allowed_tools", "require_approval", "mode", "format", "text", "image_url", "encrypted_content"}
    | {"approval_request_id", "approve", "commands", "command", "environment", "tools", "tool_names", "always"}
)
_WORDS = st.sampled_from(
    [
        "message",
        "user",
        "assistant",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "shell_call",
        "shell_call_output",
        "local_shell_call",
        "local_shell_call_output",
        "apply_patch_call",
        "apply_patch_call_output",
        "reasoning",
        "mcp",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "item_reference",
        "compaction",
        "function",
        "custom",
        "namespace",
        "shell",
        "web_search",
        "allowed_tools",
        "required",
        "none",
        "input_text",
        "input_image",
        "input_file",
        "input_audio",
        "refusal",
        "call_1",
        "look",
    ]
)
_SHAPED = st.recursive(
    _WORDS | _VALUES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=6),
    max_leaves=30,
)


def _tried(body: object) -> None:
    """Read a request as its page does. Only GatewayErrors come out of it."""
    with suppress(GatewayError):
        resolve_request(parse_request(json.dumps(body).encode(), needs_model=True), unseal=opened)


@given(st.dictionaries(st.sampled_from(_NAMES), _SHAPED, max_size=8))
def test_arbitrary_fields_do_not_crash_the_request_parser(body: Json) -> None:
    _tried({"model": "m", "input": "Hi", **body})


@given(st.lists(st.dictionaries(st.sampled_from(_NAMES), _SHAPED, min_size=1, max_size=6), max_size=4))
def test_arbitrary_items_do_not_crash_the_request_parser(items: list[Json]) -> None:
    _tried({"model": "m", "input": items})


@given(
    st.sampled_from([HI, CALL, OUTPUT, QUESTION, FUNCTION]),
    st.dictionaries(st.sampled_from(_NAMES), _SHAPED, max_size=3),
    st.sampled_from(["input", "tools"]),
)
def test_mutated_items_do_not_crash_the_request_parser(item: Json, changes: Json, field: str) -> None:
    _tried({"model": "m", "input": "Hi", field: [{**item, **changes}]})


@given(st.binary(max_size=60))
def test_arbitrary_bytes_do_not_crash_the_request_parser(content: bytes) -> None:
    with suppress(GatewayError):
        parse_request(content, needs_model=True)


def test_long_input_is_parsed_in_linear_time() -> None:
    """Four times the items take four times the steps."""
    few, many = _steps(250), _steps(1000)
    assert many < few * 4.2


def _steps(n: int) -> int:
    """Return the number of calls that reading a conversation of `n` items takes."""
    items = [
        item
        for i in range(n // 5)
        for item in (
            {**CALL, "id": f"fc_{i}", "call_id": f"call_{i}"},
            {**OUTPUT, "call_id": f"call_{i}"},
            {**QUESTION, "id": f"ap_{i}"},
            {"type": "mcp_approval_response", "approval_request_id": f"ap_{i}", "approve": True},
            {"role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
        )
    ]
    content = json.dumps({"model": "m", "input": [*items, HI]}).encode()
    steps = 0

    def count(_frame: object, _event: str, _value: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        resolve_request(parse_request(content, needs_model=True), unseal=opened)
    finally:
        sys.setprofile(None)
    return steps
