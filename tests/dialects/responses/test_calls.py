"""Calls of the client's tools, as items and as calls of functions."""

import json

import pytest

from gateway.contracts.storage.store import Json
from gateway.dialects.responses.calls import EXACT, ClientTool, build_call_item, build_chat_call, build_model_name
from gateway.tools.schema import find_problem

from .test_items import CUSTOM, LOCAL_SHELL, PATCH, SHELL

CALL: Json = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at": "sky"}'}


def called(item: Json) -> tuple[str, object]:
    """Return name and arguments of the call that an item is."""
    call = build_chat_call(item)
    assert call["id"] == item["call_id"] and call["type"] == "function"
    return call["function"]["name"], json.loads(call["function"]["arguments"])


def test_function_call_item_converts_to_a_chat_call() -> None:
    assert build_chat_call(CALL)["function"] == {"name": "look", "arguments": '{"at": "sky"}'}
    assert called({**CALL, "arguments": ""}) == ("look", {})
    assert called({**CALL, "namespace": "crm"}) == ("crm__look", {"at": "sky"})


def test_other_tool_call_items_convert_to_function_calls() -> None:
    assert called(CUSTOM) == ("sql", {"input": "SELECT 1"})
    assert called(LOCAL_SHELL) == ("local_shell", {"command": ["ls"]})
    assert called(SHELL) == ("shell", {"commands": ["ls"]})
    assert called(PATCH) == ("apply_patch", {"type": "delete_file", "path": "a"})


def test_namespaced_tool_names_fit_model_limits() -> None:
    assert build_model_name("look", None) == "look"
    assert build_model_name("look", "crm") == "crm__look"
    long = build_model_name("l" * 60, "crm")
    assert len(long) <= 64 and long != build_model_name("l" * 61, "crm")
    assert ClientTool(kind="function", name="look", namespace="crm").model_name == "crm__look"


def item(kind: str, arguments: object, **fields: str) -> Json:
    """Return the item of a call whose arguments are these, as JSON unless they are a text."""
    tool = ClientTool(kind=kind, name=kind, **fields)
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return build_call_item(tool, call_id="call_1", arguments=text)


def test_function_call_item_keeps_the_raw_arguments() -> None:
    assert item("function", '{"at":  1}') == {
        "type": "function_call",
        "call_id": "call_1",
        "name": "function",
        "arguments": '{"at":  1}',
    }
    assert item("function", "{", namespace="crm")["namespace"] == "crm"


def test_custom_tool_call_item_has_a_text_input() -> None:
    assert item("custom", {"input": "SELECT 1"}) == {
        "type": "custom_tool_call",
        "call_id": "call_1",
        "name": "custom",
        "input": "SELECT 1",
    }
    assert item("custom", {"input": "a"}, namespace="crm")["namespace"] == "crm"


def test_shell_call_item_has_its_action() -> None:
    assert item("local_shell", {"command": ["ls"], "working_directory": "/", "timeout_ms": 5}) == {
        "type": "local_shell_call",
        "call_id": "call_1",
        "action": {"type": "exec", "command": ["ls"], "env": {}, "working_directory": "/", "timeout_ms": 5},
    }
    assert item("shell", {"commands": ["ls", "pwd"], "max_output_length": 9}) == {
        "type": "shell_call",
        "call_id": "call_1",
        "action": {"commands": ["ls", "pwd"], "timeout_ms": None, "max_output_length": 9},
    }


def test_patch_call_item_has_its_operation() -> None:
    created = {"type": "create_file", "path": "a", "diff": "+b"}
    assert item("apply_patch", created)["operation"] == created
    deleted = {"type": "delete_file", "path": "a"}
    for nothing in ({}, {"diff": None}, {"diff": ""}):
        assert item("apply_patch", {**deleted, **nothing})["operation"] == deleted


#: What fits each kind of tool, and what another action, or a part of it, would have to be made of.
FITS: dict[str, list[object]] = {
    "custom": [{"input": ""}, {"input": "SELECT 1"}],
    "local_shell": [{"command": ["ls"]}, {"command": [], "working_directory": None, "timeout_ms": 0}],
    "shell": [{"commands": ["ls"], "timeout_ms": None}, {"commands": ["a", "b"], "max_output_length": 5}],
    "apply_patch": [
        {"type": "create_file", "path": "a", "diff": ""},
        {"type": "update_file", "path": "a", "diff": "+b"},
        {"type": "delete_file", "path": "a"},
        {"type": "delete_file", "path": "a", "diff": None},
    ],
}
UNFIT: list[tuple[str, object]] = [
    *((kind, arguments) for kind in FITS for arguments in ({}, [], None, {"x": 1})),
    ("custom", {"input": {"a": 1}}),
    ("custom", {"input": "a", "more": "b"}),
    ("local_shell", {"command": "ls"}),
    ("local_shell", {"command": ["ls"], "env": {"A": "b"}}),
    ("local_shell", {"command": ["ls"], "timeout_ms": "5"}),
    ("shell", {"command": ["ls"]}),
    ("shell", {"commands": ["a", 5]}),
    ("shell", {"commands": ["ls"], "timeout_ms": True}),
    ("shell", {"commands": ["ls"], "cwd": "/"}),
    ("shell", {"action": {"commands": ["ls"]}}),
    ("apply_patch", {"path": "a"}),
    ("apply_patch", {"type": "delete_everything", "path": "a"}),
    ("apply_patch", {"type": "delete_file", "path": 5}),
    ("apply_patch", {"type": "delete_file", "path": "a", "diff": "-b"}),
    ("apply_patch", {"type": "create_file", "path": "a"}),
    ("apply_patch", {"type": "update_file", "path": "a", "diff": None}),
    ("apply_patch", {"operation": {"type": "create_file", "path": "a", "diff": "+x"}}),
    ("apply_patch", {"patch": "*** Begin Patch"}),
]


@pytest.mark.parametrize(("kind", "arguments"), [(kind, one) for kind, fitting in FITS.items() for one in fitting])
def test_valid_arguments_convert_to_the_tool_item_losslessly(kind: str, arguments: Json) -> None:
    """All of it, and nothing more but defaults."""
    assert find_problem(EXACT[kind], arguments) is None
    found = item(kind, arguments)
    assert found["type"] == ("custom_tool_call" if kind == "custom" else f"{kind}_call")
    back = json.loads(build_chat_call(found)["function"]["arguments"])
    assert back == {name: value for name, value in arguments.items() if value is not None}


@pytest.mark.parametrize(("kind", "arguments"), UNFIT)
def test_invalid_arguments_convert_to_a_raw_function_call(kind: str, arguments: Json) -> None:
    """With the arguments byte for byte: nothing is left out of an action, and none is made up."""
    assert find_problem(EXACT[kind], arguments) is not None
    written = json.dumps(arguments, indent=1)
    expected = {"type": "function_call", "call_id": "call_1", "name": kind, "arguments": written}
    assert item(kind, written) == expected


@pytest.mark.parametrize("written", ["", "{", "SELECT 1", '{"commands":["a"],"commands":["b"]}', '{"input":1e999}'])
@pytest.mark.parametrize("kind", EXACT)
def test_ambiguous_or_unreadable_arguments_are_forwarded_unchanged(kind: str, written: str) -> None:
    """The client that reads them may refuse them."""
    found = item(kind, written)
    assert (found["type"], found["arguments"]) == ("function_call", written)


@pytest.mark.parametrize("original", [CALL, CUSTOM, LOCAL_SHELL, SHELL, PATCH])
def test_tool_call_item_round_trips(original: Json) -> None:
    function = build_chat_call(original)["function"]
    kind = original["type"].removesuffix("_call").removesuffix("_tool")
    tool = ClientTool(kind=kind, name=function["name"])
    back = build_call_item(tool, call_id=original["call_id"], arguments=function["arguments"])
    assert build_chat_call(back) == build_chat_call(original)
