"""Requests of clients that speak another API, in the fields of chats alone."""

from gateway.contracts.storage.store import Json
from gateway.model.apis.chat.foreign_fields import drop_foreign_fields, list_foreign_fields

MARK: Json = {"type": "ephemeral"}
BODY: Json = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}


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
