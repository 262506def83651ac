"""Items of a client: which are refused, and the form in which they are listed."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.dialects.responses.items import build_input_items, check_item, is_of_response

from .requests import APPROVAL, CALL, HI, OUTPUT, QUESTION, asked, refusal

CUSTOM: Json = {"type": "custom_tool_call", "call_id": "call_2", "name": "sql", "input": "SELECT 1"}
CUSTOM_OUTPUT: Json = {"type": "custom_tool_call_output", "call_id": "call_2", "output": "1"}
LOCAL_SHELL: Json = {
    "type": "local_shell_call",
    "id": "lsh_1",
    "call_id": "call_3",
    "status": "completed",
    "action": {"type": "exec", "command": ["ls"], "env": {}},
}
LOCAL_SHELL_OUTPUT: Json = {"type": "local_shell_call_output", "id": "call_3", "output": "a.txt"}
SHELL: Json = {"type": "shell_call", "call_id": "call_4", "action": {"commands": ["ls"], "timeout_ms": None}}
SHELL_OUTPUT: Json = {
    "type": "shell_call_output",
    "call_id": "call_4",
    "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
}
PATCH: Json = {
    "type": "apply_patch_call",
    "call_id": "call_5",
    "status": "completed",
    "operation": {"type": "delete_file", "path": "a"},
}
PATCH_OUTPUT: Json = {"type": "apply_patch_call_output", "call_id": "call_5", "status": "completed"}
REASONING: Json = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
TOOLS: Json = {
    "type": "mcp_list_tools",
    "id": "mcpl_1",
    "server_label": "box",
    "tools": [{"name": "t", "input_schema": {}}],
}
OWN_CALL: Json = {
    "type": "mcp_call",
    "id": "mcp_1",
    "server_label": "box",
    "name": "t",
    "arguments": "{}",
    "output": "done",
}
COMPACTION: Json = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed:They said hi."}
GOOD = [
    HI,
    CALL,
    OUTPUT,
    CUSTOM,
    CUSTOM_OUTPUT,
    LOCAL_SHELL,
    LOCAL_SHELL_OUTPUT,
    SHELL,
    SHELL_OUTPUT,
    PATCH,
    PATCH_OUTPUT,
    REASONING,
    TOOLS,
    OWN_CALL,
    QUESTION,
    APPROVAL,
    COMPACTION,
]
#: For each kind of item, the fields that it must have.
REQUIRED = {
    "message": ["role", "content"],
    "function_call": ["call_id", "name", "arguments"],
    "function_call_output": ["call_id", "output"],
    "custom_tool_call": ["call_id", "name", "input"],
    "custom_tool_call_output": ["call_id", "output"],
    "local_shell_call": ["call_id", "action"],
    "local_shell_call_output": ["id", "output"],
    "shell_call": ["call_id", "action"],
    "shell_call_output": ["call_id", "output"],
    "apply_patch_call": ["call_id", "operation"],
    "apply_patch_call_output": ["call_id", "status"],
    "mcp_list_tools": ["server_label", "tools"],
    "mcp_call": ["server_label", "name", "arguments"],
    "mcp_approval_request": ["id", "server_label", "name", "arguments"],
    "mcp_approval_response": ["approval_request_id", "approve"],
    "compaction": ["encrypted_content"],
}


@pytest.mark.parametrize("item", GOOD, ids=lambda item: str(item["type"]))
def test_every_kind_of_item_is_read(item: Json) -> None:
    assert check_item("input[0]", item) == item


@pytest.mark.parametrize("item", GOOD, ids=lambda item: str(item["type"]))
def test_missing_required_item_field_is_refused(item: Json) -> None:
    for name in REQUIRED.get(item["type"], []):
        error = refusal({key: value for key, value in item.items() if key != name})
        assert (error.code, error.param) == ("missing_field", f"input[0].{name}")


@pytest.mark.parametrize("item", GOOD, ids=lambda item: str(item["type"]))
def test_item_field_with_a_wrong_type_is_refused(item: Json) -> None:
    for name in item:
        if name == "type":
            continue
        error = refusal({**item, name: 5.5})
        assert (error.code, error.param) == ("invalid_field", f"input[0].{name}")


@pytest.mark.parametrize("field", ["id", "call_id", "name", "namespace"])
def test_names_of_a_megabyte_are_refused(field: str) -> None:
    error = refusal({**CALL, field: "x" * 1_000_000})
    assert (error.code, error.param) == ("invalid_field", f"input[0].{field}")


@pytest.mark.parametrize(
    ("item", "code", "param"),
    [
        (5, "invalid_field", "input[0]"),
        (None, "invalid_field", "input[0]"),
        ("Hi", "invalid_field", "input[0]"),
        ([], "invalid_field", "input[0]"),
        ({}, "missing_field", "input[0].type"),
        ({"id": "msg_1", "content": "Hi"}, "missing_field", "input[0].type"),
        ({"id": 5}, "invalid_field", "input[0].id"),
        ({"type": 5}, "invalid_field", "input[0].type"),
        ({"type": ["message"]}, "invalid_field", "input[0].type"),
        ({"type": "massage"}, "invalid_field", "input[0].type"),
        ({"type": "m" * 1_000_000}, "invalid_field", "input[0].type"),
        ({"type": "additional_tools", "role": "developer", "tools": []}, "unsupported_parameter", "input[0]"),
        ({"type": "configuration_update"}, "unsupported_parameter", "input[0]"),
        ({"role": "tool", "content": ""}, "invalid_field", "input[0].role"),
        ({"role": None, "content": ""}, "missing_field", "input[0].role"),
        ({"role": ["user"], "content": ""}, "invalid_field", "input[0].role"),
        ({**HI, "phase": "later", "id": "a"}, "invalid_field", "input[0].phase"),
        ({**HI, "id": 5}, "invalid_field", "input[0].id"),
        ({**CALL, "name": "look at"}, "invalid_field", "input[0].name"),
        ({**LOCAL_SHELL, "action": {}}, "missing_field", "input[0].action.command"),
        ({**LOCAL_SHELL, "action": {"command": "ls"}}, "invalid_field", "input[0].action.command"),
        ({**LOCAL_SHELL_OUTPUT, "id": ""}, "missing_field", "input[0].id"),
        ({**SHELL, "action": {"commands": [1]}}, "invalid_field", "input[0].action.commands"),
        ({**SHELL_OUTPUT, "output": [5]}, "invalid_field", "input[0].output[0]"),
        ({**SHELL_OUTPUT, "output": [{}]}, "missing_field", "input[0].output[0].stdout"),
        (
            {**SHELL_OUTPUT, "output": [{"stdout": "", "stderr": "", "outcome": {"type": "lost"}}]},
            "invalid_field",
            "input[0].output[0].outcome.type",
        ),
        ({**PATCH, "operation": {"type": "move_file"}}, "invalid_field", "input[0].operation.type"),
        ({**PATCH, "operation": {"type": "create_file"}}, "missing_field", "input[0].operation.path"),
        ({**PATCH_OUTPUT, "status": "lost"}, "invalid_field", "input[0].status"),
        ({**REASONING, "summary": [5]}, "invalid_field", "input[0].summary[0]"),
        ({**REASONING, "content": [{"type": "reasoning_text"}]}, "missing_field", "input[0].content[0].text"),
        ({**TOOLS, "tools": [5]}, "invalid_field", "input[0].tools[0]"),
        ({**TOOLS, "tools": [{}]}, "missing_field", "input[0].tools[0].name"),
        ({**APPROVAL, "approve": "yes"}, "invalid_field", "input[0].approve"),
        ({**APPROVAL, "reason": 5}, "invalid_field", "input[0].reason"),
    ],
)
def test_invalid_items_are_refused(item: object, code: str, param: str) -> None:
    error = refusal(item)
    assert (error.code, error.param) == (code, param)


def test_refusal_of_an_input_item_names_its_index() -> None:
    assert refusal(HI, HI, {**HI, "content": 5}).param == "input[2].content"


def test_message_without_a_type_and_with_unknown_fields_is_accepted() -> None:
    item = {"role": "user", "content": "Hi", "internal_metadata": {"turn": 1}, "status": None, "id": None}
    assert check_item("input[0]", item) == {**item, "type": "message"}


def test_compaction_summary_type_is_read_as_compaction() -> None:
    assert check_item("input[0]", {**COMPACTION, "type": "compaction_summary"}) == COMPACTION


def test_output_with_a_tool_name_needs_no_call_id() -> None:
    item = {"type": "function_call_output", "name": "automation_update", "call_id": None, "output": "tick"}
    assert check_item("input[0]", item) == item


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
        {"type": "file_search_call", "id": "fs_1", "queries": []},
        {"type": "computer_call_output", "call_id": "call_9", "output": {}},
        {"type": "image_generation_call", "id": "ig_1", "result": "AA=="},
        {"type": "acme:telemetry_chunk", "id": "tc_1"},
    ],
)
def test_hosted_tool_items_are_kept_and_hidden_from_models(item: Json) -> None:
    assert asked(HI, item).body == asked(HI).body
    assert asked(HI, item).items[1] == item


def test_response_item_kinds_are_recognized() -> None:
    kinds = [item["type"] for item in GOOD if is_of_response(item)]
    assert kinds == [
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "reasoning",
        "mcp_list_tools",
        "mcp_call",
        "mcp_approval_request",
        "compaction",
    ]
    assert is_of_response({"type": "message", "role": "assistant", "content": ""})


RESPONSE = "resp_" + "0123456789abcdef" * 1 + "01234567"


def test_listed_input_items_have_ids_that_contain_the_response_id() -> None:
    bare = [{"role": "user", "content": "Hi"}, {**CALL, "id": None}, OUTPUT, {**REASONING, "id": ""}, CUSTOM]
    found = build_input_items(
        [check_item("", item) for item in [*bare, CUSTOM_OUTPUT, APPROVAL, PATCH, CALL]], response_id=RESPONSE
    )
    head = "0123456789abcdef01234567i000"
    assert [item["id"] for item in found] == [
        f"msg_{head}0",
        f"fc_{head}1",
        f"fco_{head}2",
        f"rs_{head}3",
        f"ctc_{head}4",
        f"ctco_{head}5",
        f"mcpr_{head}6",
        f"item_{head}7",
        "fc_1",
    ]


def test_listed_messages_contain_parts() -> None:
    (of_user,) = build_input_items([HI], response_id=RESPONSE)
    assert of_user["content"] == [{"type": "input_text", "text": "Hi"}] and of_user["status"] == "completed"
    image = {"type": "input_image", "image_url": "https://a", "detail": None}
    said = {"type": "output_text", "text": "a", "annotations": [{"type": "url_citation"}]}
    refused = {"type": "refusal", "refusal": "no"}
    found = build_input_items(
        [
            {"type": "message", "role": "user", "content": [image, {"type": "text", "text": "a"}, refused]},
            {"type": "message", "role": "assistant", "content": "Hi", "phase": "final_answer"},
            {"type": "message", "role": "assistant", "content": [said, refused], "status": "incomplete"},
            {"type": "reasoning", "summary": None},
        ],
        response_id=RESPONSE,
    )
    assert found[0]["content"] == [
        {**image, "detail": "auto"},
        {"type": "input_text", "text": "a"},
        {"type": "input_text", "text": "no"},
    ]
    assert found[1]["content"] == [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}]
    assert found[1]["phase"] == "final_answer"
    assert found[2]["content"] == [{**said, "logprobs": []}, refused] and found[2]["status"] == "incomplete"
    assert found[3]["summary"] == [] and "status" not in found[3]
