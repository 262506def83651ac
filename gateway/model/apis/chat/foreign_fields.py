"""Requests of clients of Messages and Responses, for a model of chat completions: without what only those have.

Such a request has `messages_api` or `responses_api`, so a request of any other client costs two looks. In one of
Messages, marks of caches and the fields beside parts go, documents that are text become text, and files of a tool's
result follow in a message of the user.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.dialects.document_texts import read_text_url
from gateway.dialects.merged_messages import join

#: The field of a request, and of a message or a tool in it.
_MESSAGES_API: Final = "messages_api"
_RESPONSES_API: Final = "responses_api"
_OF_MESSAGES: Final = frozenset((_MESSAGES_API, "cache_control", "is_error", "caller", "toolset_name"))
_BESIDE_PARTS: Final = frozenset(("cache_control", "citations", "title", "context", "transformations"))
_OF_TOOLS: Final = ("type", "function")
_FILENAME: Final = "document.pdf"
_FILES: Final = "The output is in the next message."
_FAILED: Final = "Error: "
#: What stands between two texts of one message: the texts of an answer follow each other.
_GAPS: Final[Mapping[object, str]] = {"assistant": "", "tool": "\n"}
_GAP: Final = "\n\n"
#: From so many tokens for thoughts on, an effort is more than the one before it.
_MEDIUM_TOKENS, _HIGH_TOKENS = 4096, 16384


def drop_foreign_fields(body: Json) -> Json:
    """Return a request in the fields of chats alone: itself if it is one already."""
    if _RESPONSES_API in body:
        body = {name: value for name, value in body.items() if name != _RESPONSES_API}
    return _remove_messages_fields(body) if _MESSAGES_API in body else body


def list_foreign_fields(body: Json) -> list[str]:
    """Return the fields of other APIs in a request."""
    groups = ((name, body.get(name)) for name in (_MESSAGES_API, _RESPONSES_API))
    return [f"{name}.{field}" for name, fields in groups if isinstance(fields, dict) for field in sorted(fields)]


def _remove_messages_fields(body: Json) -> Json:
    """Return the body of a request from a client of Messages as chat completions have it."""
    found = {name: value for name, value in body.items() if name != _MESSAGES_API}
    found["messages"] = list(_convert_messages(body.get("messages") or ()))
    if tools := body.get("tools"):
        found["tools"] = [{name: tool[name] for name in _OF_TOOLS if name in tool} for tool in tools]
    if (effort := _find_effort(body[_MESSAGES_API])) is not None:
        found.setdefault("reasoning_effort", effort)
    return found


def _find_effort(fields: Json) -> str | None:
    """Return the effort that a request demands of its model's thoughts, in the words of chat completions.

    None: it leaves them to the model. Programs leave them so with each request, and servers refuse an effort for models
    that do not think.
    """
    thinking = fields.get("thinking") or {}
    if thinking.get("type") != "enabled":
        return None
    tokens = thinking.get("budget_tokens")
    if type(tokens) is not int:
        return None
    return "low" if tokens < _MEDIUM_TOKENS else "medium" if tokens < _HIGH_TOKENS else "high"


def _convert_messages(messages: Sequence[Json]) -> Iterator[Json]:
    """Yield the messages without the fields of Messages."""
    files: list[Json] = []  # of results, until the last one of them
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role == "system" and not content and _MESSAGES_API in message:
            continue
        has_failed = role == "tool" and message.get("is_error") is True
        message = _remove_fields(message)
        if message.get("tool_calls"):
            message = {**message, "tool_calls": [_remove_fields(call) for call in message["tool_calls"]]}
        if isinstance(content, list):
            parts = [_convert_part(part) for part in content]
            if role == "tool":
                files += [part for part in parts if not _is_text(part)]
                parts = [part for part in parts if _is_text(part)]
                if len(parts) < len(content):
                    parts.append({"type": "text", "text": _FILES})
            message = {**message, "content": _simplify(parts, role)}
        if has_failed:
            message = _mark_failure(message)
        if files and role != "tool":
            beside: Json = {"role": "user", "content": files}
            if role == "user":
                message = join(beside, message)
            else:
                yield beside
            files = []
        yield message
    if files:
        yield {"role": "user", "content": files}


def _mark_failure(message: Json) -> Json:
    """Return the result of a call that failed, as a chat shows that: by its text."""
    text = message.get("content")
    is_marked = not isinstance(text, str) or text[: len(_FAILED)].lower().startswith("error")
    return message if is_marked else {**message, "content": _FAILED + str(text)}


def _remove_fields(value: Json) -> Json:
    if _OF_MESSAGES.isdisjoint(value):
        return value
    return {name: inner for name, inner in value.items() if name not in _OF_MESSAGES}


def _convert_part(part: Json) -> Json:
    """Return a part without the fields of Messages; a file that is a text is one."""
    if part.get("type") in ("search_result", "document"):
        return _convert_source(part)
    if not _BESIDE_PARTS.isdisjoint(part):
        part = {name: value for name, value in part.items() if name not in _BESIDE_PARTS}
    file = part.get("file") if part.get("type") == "file" else None
    data = file.get("file_data") if isinstance(file, dict) else None
    if not isinstance(file, dict) or not isinstance(data, str):
        return part
    if (text := read_text_url(data)) is None:
        return {**part, "file": {"filename": _FILENAME, **file}}
    return {"type": "text", "text": _join_paragraphs(file.get("filename"), text)}


def _convert_source(part: Json) -> Json:
    """Return a result of a search, or a document of blocks, as one text."""
    source = part.get("source")
    content, name = (source.get("content"), None) if isinstance(source, dict) else (part.get("content"), source)
    texts = [content] if isinstance(content, str) else [block.get("text") for block in content or ()]
    return {"type": "text", "text": _join_paragraphs(part.get("title"), name, part.get("context"), *texts)}


def _join_paragraphs(*texts: object) -> str:
    return _GAP.join([text for text in texts if isinstance(text, str) and text])


def _is_text(part: Json) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def _simplify(parts: Sequence[Json], role: object) -> str | Sequence[Json]:
    """Return parts as one text if all are texts: each model server takes that."""
    if all(map(_is_text, parts)):
        return _GAPS.get(role, _GAP).join([part["text"] for part in parts])
    return parts
