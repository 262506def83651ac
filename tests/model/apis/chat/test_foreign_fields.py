"""Requests of clients that speak another API, in the fields of chats alone."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.model.apis.chat.foreign_fields import drop_foreign_fields, list_foreign_fields

IMAGE: Json = {"type": "image_url", "image_url": {"url": "https://x"}}
MARK: Json = {"type": "ephemeral"}
BODY: Json = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}


def convert(*messages: Json, **own: object) -> Json:
    return drop_foreign_fields({"model": "m", "messages": list(messages), "messages_api": own})


def contents(*messages: Json) -> list[object]:
    return [message["content"] for message in convert(*messages)["messages"]]


def text(words: str, **beside: object) -> Json:
    return {"type": "text", "text": words, **beside}


def test_request_of_another_client_stays_as_it_is() -> None:
    """The same object: it costs one look."""
    body = {"messages": [{"role": "user", "content": [text("x", cache_control=MARK)]}]}
    assert drop_foreign_fields(body) is body


def test_texts_are_one_text() -> None:
    """As each model server takes it; with other parts they stay parts."""
    two = [text("a", cache_control=MARK), text("b", citations=[])]
    told = contents(*({"role": role, "content": two} for role in ("system", "user", "assistant", "tool")))
    assert told == ["a\n\nb", "a\n\nb", "ab", "a\nb"]
    assert contents({"role": "user", "content": [*two, IMAGE]}) == [[text("a"), text("b"), IMAGE]]


def test_message_for_the_model_server_alone_goes() -> None:
    """One with a text stays."""
    alone = {"role": "system", "content": "", "messages_api": {"output_config": {}}}
    named = {"role": "system", "content": "x", "messages_api": {"clear_at": "never"}}
    assert convert(alone, named)["messages"] == [{"role": "system", "content": "x"}]


def test_files_of_results_follow_the_last_result() -> None:
    """As words of the user, joined to the ones that come."""
    result = {
        "role": "tool",
        "tool_call_id": "1",
        "content": [text("a"), IMAGE],
        "is_error": True,
        "cache_control": MARK,
    }
    said = {"role": "user", "content": "x"}
    first, second, behind = convert(result, result, said)["messages"]
    failed = {"role": "tool", "tool_call_id": "1", "content": "Error: a\nThe output is in the next message."}
    assert first == second == failed
    assert behind == {"role": "user", "content": [IMAGE, IMAGE, text("x")]}
    assert convert(result)["messages"][1] == {"role": "user", "content": [IMAGE]}
    answer = {"role": "assistant", "content": "x"}
    assert [m["role"] for m in convert(result, answer)["messages"]] == ["tool", "user", "assistant"]


def test_documents_are_texts_or_files_with_a_name() -> None:
    """Broken Base64 goes on as it is: the server judges it."""
    plain = {
        "type": "file",
        "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,SGk="},
        "title": "a.txt",
    }
    assert contents({"role": "user", "content": [plain]}) == ["a.txt\n\nHi"]
    broken = {"type": "file", "file": {"filename": "b.txt", "file_data": "data:text/plain;base64,S"}}
    pdf = {"type": "file", "file": {"file_data": "data:application/pdf;base64,eA=="}, "context": "c"}
    named = {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,eA=="}}
    assert contents({"role": "user", "content": [broken, pdf]}) == [[broken, named]]
    found = {"type": "search_result", "source": "s", "title": "t", "content": [text("a"), text("b")]}
    whole = {"type": "document", "source": {"type": "content", "content": "a"}, "context": "c"}
    assert contents({"role": "user", "content": [found, whole]}) == ["t\n\ns\n\na\n\nb\n\nc\n\na"]


def test_calls_and_tools_have_chats_fields_alone() -> None:
    """A provider's own fields of a call stay."""
    call = {"id": "1", "type": "function", "function": {}, "extra_content": {"a": 1}}
    body = drop_foreign_fields(
        {
            "messages_api": {},
            "messages": [{"role": "assistant", "content": None, "tool_calls": [{**call, "cache_control": MARK}]}],
            "tools": [{"type": "function", "function": {}, "cache_control": MARK, "defer_loading": True}],
        }
    )
    assert body["messages"][0]["tool_calls"] == [call] and body["tools"] == [{"type": "function", "function": {}}]


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, "low"),
        ({"type": "enabled", "budget_tokens": 8000}, "medium"),
        ({"type": "enabled", "budget_tokens": 32000}, "high"),
        ({"type": "enabled", "budget_tokens": "many"}, None),
        ({"type": "adaptive"}, None),
        ({"type": "disabled"}, None),
        ({}, None),
    ],
)
def test_demanded_thoughts_are_an_effort(thinking: Json, effort: str | None) -> None:
    """What a program leaves to the model is none: servers refuse an effort for models that do not think."""
    assert convert(thinking=thinking, output_config={"effort": "high"}).get("reasoning_effort") == effort


def test_request_of_a_chat_client_is_not_looked_at() -> None:
    body: Json = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "cache_control": MARK}]}]}
    assert drop_foreign_fields(body) is body


def test_fields_of_responses_are_left_out_alone() -> None:
    assert drop_foreign_fields({**BODY, "responses_api": {"truncation": "auto"}}) == BODY


def test_request_of_a_client_of_messages_is_one_of_a_chat() -> None:
    sent = drop_foreign_fields({**BODY, "messages_api": {"top_k": 5}})
    assert sent == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def test_fields_are_listed_by_their_api() -> None:
    named = list_foreign_fields({**BODY, "responses_api": {"b": 1, "a": 1}, "messages_api": {"top_k": 1}})
    assert named == ["messages_api.top_k", "responses_api.a", "responses_api.b"]
