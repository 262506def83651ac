"""Names of tools that a server refuses, there and back."""

from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.model.adaptation.tool_names import build_plain_name, restore_tool_names, use_plain_names

ODD = "files.read/天气"


def test_invalid_tool_names_become_distinct_plain_names() -> None:
    """Names that become alike in their letters have another hash."""
    assert build_plain_name("get_weather-2") == "get_weather-2"
    names = {
        build_plain_name(name)
        for name in (ODD, "files_read", "files.read", "files/read", "天气", "气天", "x" * 65, "x" * 66)
    }
    assert len(names) == 8 and all(len(name) <= 64 and name.isascii() for name in names)


def test_renamed_tool_is_renamed_everywhere_and_restored_in_answers() -> None:
    """And gets its name back in the model's call."""
    function = {"name": ODD, "arguments": "{}"}
    call = {"id": "c", "type": "function", "function": function}
    body: Json = {
        "messages": [
            {"role": "user", "content": ODD},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "name": ODD, "content": "x"},
        ],
        "tools": [{"type": "function", "function": {"name": ODD}}, {"type": "function", "function": {"name": "fine"}}],
        "tool_choice": {"type": "function", "function": {"name": ODD}},
    }
    sent = use_plain_names(body)
    assert str(sent).count(build_plain_name(ODD)) == 4 and sent["messages"][0] == body["messages"][0]
    told: list[Chunk] = []
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [sent["messages"][1]["tool_calls"][0]]}}]}
    emit = restore_tool_names(lambda one: told.append(one), body)
    emit("text")
    emit(chunk)
    assert told == ["text", {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}]


def test_body_with_plain_tool_names_is_unchanged() -> None:
    body: Json = {"messages": [], "tools": [{"type": "function", "function": {"name": "fine"}}]}
    assert use_plain_names(body) is body
