"""Items as messages of chat completions, and what else an answer needs of a request."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.dialects.chat_request import list_client_tools
from gateway.dialects.packed_reasoning import ReasoningContent, pack_reasoning
from gateway.dialects.responses.conversation import resolve_request

from .requests import APPROVAL, CALL, FUNCTION, HI, OUTPUT, QUESTION, asked, messages, opened, refusal, request
from .test_items import (
    COMPACTION,
    CUSTOM,
    CUSTOM_OUTPUT,
    GOOD,
    LOCAL_SHELL,
    LOCAL_SHELL_OUTPUT,
    OWN_CALL,
    PATCH,
    PATCH_OUTPUT,
    REASONING,
    SHELL,
    SHELL_OUTPUT,
    TOOLS,
)

SAID: Json = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
CALLED: Json = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at":"sky"}'}}
TOLD: Json = {"role": "tool", "tool_call_id": "call_1", "content": "blue"}


def test_items_convert_to_chat_messages_by_role() -> None:
    items = [
        {"role": "system", "content": "a"},
        {"role": "developer", "content": "b"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d", "phase": "commentary"},
        {"role": "assistant", "content": "e", "phase": "final_answer"},
        {"role": "user", "content": "f"},
    ]
    found = [(message["role"], message["content"]) for message in messages(*items)]
    assert found == [
        ("system", "a"),
        ("system", "b"),
        ("user", "c"),
        ("assistant", "d"),
        ("assistant", "e"),
        ("user", "f"),
    ]


def test_instructions_stand_first_and_are_not_carried_over() -> None:
    found = messages(HI, earlier=[{**HI, "content": "Before"}], instructions="Be brief.")
    assert found == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Before"},
        {"role": "user", "content": "Hi"},
    ]
    items = [{"role": "developer", "content": "a"}, HI]
    assert [message["role"] for message in messages(HI, instructions=items)] == ["system", "user", "user"]


def test_request_text_is_the_last_user_message() -> None:
    assert asked(HI).text == "Hi" and asked(CALL, OUTPUT).text == ""
    assert asked({"role": "user", "content": [{"type": "input_text", "text": "a"}] * 2}).text == "a\na"


def test_text_and_calls_are_one_message_and_outputs_follow() -> None:
    second = {**CALL, "id": "fc_2", "call_id": "call_2"}
    assert messages(HI, SAID, CALL, second, OUTPUT, {**OUTPUT, "call_id": "call_2"}) == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "I look.", "tool_calls": [CALLED, {**CALLED, "id": "call_2"}]},
        TOLD,
        {**TOLD, "tool_call_id": "call_2"},
    ]


def test_call_output_is_moved_behind_its_call() -> None:
    """Codex puts a note of the developer between them; model servers take nothing there."""
    found = messages(CALL, {"role": "developer", "content": "note"}, OUTPUT, HI)
    assert [message["role"] for message in found] == ["assistant", "tool", "system", "user"]
    assert found[0] == {"role": "assistant", "content": None, "tool_calls": [CALLED]}


def test_text_after_a_call_becomes_a_separate_message() -> None:
    found = messages(CALL, SAID, OUTPUT)
    assert [message["role"] for message in found] == ["assistant", "tool", "assistant"]


def test_reasoning_is_attached_to_its_assistant_message() -> None:
    assert messages(HI, REASONING, SAID, CALL, OUTPUT)[1] == {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "Hm.",
        "tool_calls": [CALLED],
    }
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "So."}]}
    assert messages(HI, REASONING, thought, SAID)[1]["reasoning_content"] == "Hm.\nSo."
    both = {**REASONING, "content": thought["content"]}
    assert messages(HI, both, SAID)[1]["reasoning_content"] == "So."


def test_empty_reasoning_is_left_out() -> None:
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "opaque"}
    assert messages(HI, sealed, SAID) == messages(HI, SAID)
    assert messages(REASONING, HI) == messages(HI)
    assert messages(HI, REASONING) == messages(HI)
    again = {**REASONING, "id": "rs_2"}
    found = messages(HI, REASONING, SAID, again, CALL, OUTPUT)
    assert [message.get("reasoning_content") for message in found] == [None, "Hm.", "Hm.", None]


def test_empty_assistant_answer_is_dropped() -> None:
    for content in ("", []):
        assert messages(HI, {"role": "assistant", "content": content}, HI) == messages(HI, HI)
    assert messages({"role": "assistant", "content": ""}, CALL, OUTPUT) == messages(CALL, OUTPUT)


@pytest.mark.parametrize(
    ("call", "output", "name", "said"),
    [
        (CUSTOM, CUSTOM_OUTPUT, "sql", "1"),
        (LOCAL_SHELL, LOCAL_SHELL_OUTPUT, "local_shell", "a.txt"),
        (
            SHELL,
            SHELL_OUTPUT,
            "shell",
            '[{"stdout":"a","stderr":"","outcome":{"type":"exit","exit_code":0}}]',
        ),
        (PATCH, PATCH_OUTPUT, "apply_patch", "completed"),
        (PATCH, {**PATCH_OUTPUT, "status": "failed", "output": "no such file"}, "apply_patch", "no such file"),
    ],
)
def test_other_client_tool_calls_convert_to_function_calls(call: Json, output: Json, name: str, said: str) -> None:
    ours, theirs = messages(call, output)
    assert ours["tool_calls"][0]["function"]["name"] == name
    assert theirs == {"role": "tool", "tool_call_id": call["call_id"], "content": said}


def test_output_without_a_call_gets_a_synthetic_call() -> None:
    """Codex reports what happened on its own; models know outputs of calls only."""
    alone = {"type": "function_call_output", "id": "fco_1", "name": "tick", "namespace": "clock", "output": "one"}
    ours, theirs, _ = messages(alone, HI)
    assert ours["tool_calls"][0]["function"] == {"name": "clock__tick", "arguments": "{}"}
    assert theirs == {"role": "tool", "tool_call_id": "fco_1", "content": "one"}


def test_gateway_tool_calls_convert_to_calls_with_results() -> None:
    own = {**OWN_CALL, "id": "mcp_2", "server_label": "gateway", "name": "run_command"}
    found = messages(HI, TOOLS, QUESTION, APPROVAL, OWN_CALL, own, SAID, HI)
    assert found[1:4] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "mcp_1", "type": "function", "function": {"name": "box__t", "arguments": "{}"}},
                {"id": "mcp_2", "type": "function", "function": {"name": "run_command", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "mcp_1", "content": "done"},
        {"role": "tool", "tool_call_id": "mcp_2", "content": "done"},
    ]
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "tool", "assistant", "user"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("it broke", "it broke"),
        ({"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "it broke"}]}, "it broke"),
        ({"type": "http_error", "code": 500, "message": "it broke"}, "it broke"),
        ({"type": "odd"}, '{"type":"odd"}'),
    ],
)
def test_failed_gateway_call_is_given_to_the_model_as_its_error(error: object, said: str) -> None:
    assert messages(HI, {**OWN_CALL, "output": None, "error": error})[2]["content"] == said


def test_unfinished_gateway_call_is_left_out() -> None:
    assert messages(HI, {**OWN_CALL, "output": None, "status": "in_progress"}) == messages(HI)


def test_gateway_call_without_output_gets_the_stored_output() -> None:
    """Or a text: a model that saw no call would call again. One client sends its history back without outputs."""
    bare = {name: value for name, value in OWN_CALL.items() if name != "output"} | {"status": "completed"}
    assert request(HI, bare).without_output == ("mcp_1",)
    kept = asked(HI, bare, referenced={"mcp_1": OWN_CALL}).body["messages"]
    assert kept[2] == {"role": "tool", "tool_call_id": "mcp_1", "content": "done"}
    unknown = asked(HI, bare).body["messages"][2]["content"]
    assert unknown == "The call was made. Its output is not in this conversation."


def test_gateway_tool_results_of_a_request_are_listed() -> None:
    """Strangers may have written them, and which tools these are is for the lane to say."""
    assert asked(HI, OWN_CALL, SAID, HI).wishes.results == (("box", "t"),)
    assert asked(HI, {**OWN_CALL, "output": None, "status": "in_progress"}).wishes.results == ()


def test_compaction_summary_taints_the_request() -> None:
    found = asked(COMPACTION, HI)
    assert found.body["messages"][0] == {
        "role": "system",
        "content": "Summary of the conversation so far:\n\nThey said hi.",
    }
    assert found.wishes.tainted and not asked(HI).wishes.tainted


def test_what_the_server_found_by_itself_taints_the_request() -> None:
    """A client sends it back packed, and need not have the response that it is of."""
    entry = {"type": "reasoning.provider_tool", "block": {"type": "web_search_call"}}
    for details, taints in (([entry], True), ([{"type": "reasoning.text", "text": "x"}], False)):
        packed = pack_reasoning(ReasoningContent(message={"reasoning_details": details}))
        thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": packed}
        assert asked(HI, thought, SAID, HI).wishes.tainted is taints


def test_a_foreign_summary_is_refused_with_its_place() -> None:
    foreign = {**COMPACTION, "encrypted_content": "foreign"}
    error = refusal(HI, foreign)
    assert (error.code, error.param) == ("invalid_field", "input[1].encrypted_content")
    assert refusal(HI, earlier=[foreign], conversation="conv_1").param == "conversation"


def test_references_are_resolved() -> None:
    reference = {"type": "item_reference", "id": "msg_1"}
    found = asked(reference, HI, referenced={"msg_1": {**SAID, "id": "msg_1"}})
    assert found.items == ({**SAID, "id": "msg_1"}, HI)
    assert [message["role"] for message in found.body["messages"]] == ["assistant", "user"]
    error = refusal(HI, reference)
    assert (error.code, error.param) == ("item_not_found", "input[1].id")


def test_request_without_model_input_is_refused() -> None:
    assert refusal(TOOLS).param == "input"
    assert refusal(QUESTION).param == "input"
    assert asked(APPROVAL).body["messages"] == []


def test_resolved_request_includes_stream_items_and_tools() -> None:
    found = asked(HI, earlier=[TOOLS], tools=[FUNCTION, {"type": "web_search"}], stream=True)
    assert found.streams and found.request.streams
    assert found.items == (HI,) and found.listed == {"box"} and found.left_out == ("web_search",)
    assert list_client_tools(found.body) == found.client_tools.keys() == {"look"}


def test_whole_conversation_equals_earlier_items_plus_input() -> None:
    """Every kind of item has its place, and the conversation can be read again as earlier items."""
    found = resolve_request(request(*GOOD[:-2], HI), earlier=(), unseal=opened)
    assert found.body["messages"] == resolve_request(request(HI), earlier=GOOD[:-2], unseal=opened).body["messages"]
