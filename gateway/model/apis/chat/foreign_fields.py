"""Chat completion requests of clients that speak Messages, as a chat server takes them.

Such a request has what only a model that speaks Messages understands: `messages_api`, cache marks, titles of documents,
results with images. Another request costs one look.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from gateway.contracts.storage.store import Json
from gateway.dialects.message_identity import get_content_text

MARKER: Final = "messages_api"
_OF_PARTS: Final = frozenset(("cache_control", "citations", "title", "context"))
_OF_TOOLS: Final = frozenset(("type", "function"))
_OF_RESULTS: Final = frozenset(("cache_control", "is_error"))
#: Efforts of Messages that chats do not have.
_EFFORTS: Final[Mapping[object, str]] = MappingProxyType(
    {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
)
_SOME_TOKENS, _MANY_TOKENS = 4096, 16_384
_FAILED: Final = "Error: "


def drop_foreign_fields(body: Json) -> Json:
    """Return a request in the fields of chats alone, with what has an equal there: itself if it is one already."""
    own = body.get(MARKER)
    if own is None:
        return body
    plain = {name: value for name, value in body.items() if name not in (MARKER, "cache_control")}
    if isinstance(own, dict):
        plain = {**_build_equals(own), **plain}
    if isinstance(tools := body.get("tools"), list):
        plain["tools"] = [
            {name: value for name, value in tool.items() if name in _OF_TOOLS} if "function" in tool else tool
            for tool in tools
        ]
    if isinstance(messages := body.get("messages"), list):
        plain["messages"] = _convert_messages(messages)
    return plain


def _build_equals(own: Json) -> Json:
    """Return what chats call the effort of thoughts and the format of the answer."""
    equals: Json = {}
    config, thinking = own.get("output_config"), own.get("thinking")
    config = config if isinstance(config, dict) else {}
    thinking = thinking if isinstance(thinking, dict) else {}
    if (effort := _EFFORTS.get(config.get("effort"))) is not None:
        equals["reasoning_effort"] = effort
    elif type(budget := thinking.get("budget_tokens")) is int:
        equals["reasoning_effort"] = "low" if budget < _SOME_TOKENS else "medium" if budget < _MANY_TOKENS else "high"
    wanted = config.get("format")
    if isinstance(wanted, dict) and isinstance(schema := wanted.get("schema"), dict):
        equals["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return equals


def _convert_messages(messages: Sequence[Json]) -> list[Json]:
    """Return messages whose parts have no marks. Images in results follow them as the user's."""
    converted: list[Json] = []
    shown: list[Json] = []
    for message in messages:
        if message.get("role") != "tool" and shown:
            converted.append({"role": "user", "content": shown})
            shown = []
        content = message.get("content")
        if message.get("role") == "tool":
            message, parts = _convert_result(message)
            shown += parts
        elif isinstance(content, list):
            message = {**message, "content": _convert_parts(content)}
        converted.append(message)
    return [*converted, {"role": "user", "content": shown}] if shown else converted


def _convert_result(message: Json) -> tuple[Json, list[Json]]:
    """Return a result as a text, and the parts that a result of a chat cannot have."""
    content = message.get("content")
    parts = _convert_parts(content) if isinstance(content, list) else []
    text = get_content_text(content)
    if message.get("is_error") is True and not text.lower().startswith("error"):
        text = _FAILED + text
    plain = {name: value for name, value in message.items() if name not in _OF_RESULTS}
    return {**plain, "content": text}, [part for part in parts if isinstance(part, dict) and part.get("type") != "text"]


def _convert_parts(parts: Sequence[object]) -> list[Any]:
    return [
        {name: value for name, value in part.items() if name not in _OF_PARTS} if isinstance(part, dict) else part
        for part in parts
    ]
