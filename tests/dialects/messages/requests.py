"""Requests of Messages as a client sends them, and what becomes of them."""

from collections.abc import Sequence

import orjson
import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.messages.conversation import MessagesConversation
from gateway.dialects.messages.dialect import DIALECT, MessagesAsked


def build_body(messages: object = "Hi", **fields: object) -> Json:
    said = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    return {"model": "m", "max_tokens": 10, "messages": said, **fields}


def parse(messages: object = "Hi", **fields: object) -> MessagesAsked:
    asked = DIALECT.parse(orjson.dumps(build_body(messages, **fields)), needs_model=True)
    assert isinstance(asked, MessagesAsked)
    return asked


def convert(messages: Sequence[object], system: object = None) -> list[Json]:
    """The messages of a chat that these become."""
    conversation = MessagesConversation()
    if system is not None:
        conversation.add_system(system)
    conversation.add_all(messages)
    return conversation.messages


def refusal_of(messages: object = "Hi", **fields: object) -> tuple[str, str | None]:
    """The code and the place of a refusal."""
    with pytest.raises(GatewayError) as caught:
        parse(messages, **fields)
    assert caught.value.facts.status == 400
    return caught.value.code, caught.value.param
