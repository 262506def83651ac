"""Calls of the client's tools, as items and as calls of functions."""

import json

import pytest

from gateway.contracts.store import Json
from gateway.dialects.responses.calls import ClientTool, call_of, item_of, name_for_models

from .test_items import CUSTOM, LOCAL_SHELL, PATCH, SHELL

CALL: Json = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at": "sky"}'}


def called(item: Json) -> tuple[str, object]:
    """Return name and arguments of the call that an item is."""
    call = call_of(item)
    assert call["id"] == item["call_id"] and call["type"] == "function"
    return call["function"]["name"], json.loads(call["function"]["arguments"])


def test_calls_of_functions() -> None:
    assert call_of(CALL)["function"] == {"name": "look", "arguments": '{"at": "sky"}'}
    assert called({**CALL, "arguments": ""}) == ("look", {})
    assert called({**CALL, "namespace": "crm"}) == ("crm__look", {"at": "sky"})


def test_calls_of_other_tools_are_calls_of_their_functions() -> None:
    assert called(CUSTOM) == ("sql", {"input": "SELECT 1"})
    assert called(LOCAL_SHELL) == ("local_shell", {"command": ["ls"]})
    assert called(SHELL) == ("shell", {"commands": ["ls"]})
    assert called(PATCH) == ("apply_patch", {"type": "delete_file", "path": "a"})


def test_names_of_namespaces_fit_models() -> None:
    assert name_for_models("look", None) == "look"
    assert name_for_models("look", "crm") == "crm__look"
    long = name_for_models("l" * 60, "crm")
    assert len(long) <= 64 and long != name_for_models("l" * 61, "crm")
    assert ClientTool(kind="function", name="look", namespace="crm").model_name == "crm__look"


def item(kind: str, arguments: object, **fields: str) -> Json:
    """Return the item of a call whose arguments are these, as JSON unless they are a text."""
    tool = ClientTool(kind=kind, name=kind, **fields)
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return item_of(tool, call_id="call_1", arguments=text)


def test_items_of_functions_have_the_arguments_as_the_model_wrote_them() -> None:
    assert item("function", '{"at":  1}') == {
        "type": "function_call",
        "call_id": "call_1",
        "name": "function",
        "arguments": '{"at":  1}',
    }
    assert item("function", "{", namespace="crm")["namespace"] == "crm"


def test_items_of_custom_tools_have_a_text() -> None:
    assert item("custom", {"input": "SELECT 1"}) == {
        "type": "custom_tool_call",
        "call_id": "call_1",
        "name": "custom",
        "input": "SELECT 1",
    }
    assert item("custom", {"input": "a"}, namespace="crm")["namespace"] == "crm"
    for other in ("SELECT 1", '{"query": 1}', '{"input": 5}', "[]"):
        assert item("custom", other)["input"] == other


def test_items_of_shells() -> None:
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


def test_items_of_patches() -> None:
    created = {"type": "create_file", "path": "a", "diff": "+b"}
    assert item("apply_patch", created)["operation"] == created
    deleted = {"type": "delete_file", "path": "a"}
    assert item("apply_patch", {**deleted, "diff": "-b"})["operation"] == deleted


@pytest.mark.parametrize("arguments", ["", "{", "[]", "null", '{"command": "ls", "commands": [1], "path": 5}'])
def test_arguments_that_do_not_fit_run_nothing(arguments: str) -> None:
    assert item("local_shell", arguments)["action"]["command"] == []
    assert item("shell", arguments)["action"]["commands"] == []
    assert item("apply_patch", arguments)["operation"] == {"type": "update_file", "path": "", "diff": ""}


@pytest.mark.parametrize("original", [CALL, CUSTOM, LOCAL_SHELL, SHELL, PATCH])
def test_a_call_comes_back_as_it_went(original: Json) -> None:
    function = call_of(original)["function"]
    kind = original["type"].removesuffix("_call").removesuffix("_tool")
    tool = ClientTool(kind=kind, name=function["name"])
    back = item_of(tool, call_id=original["call_id"], arguments=function["arguments"])
    assert call_of(back) == call_of(original)
