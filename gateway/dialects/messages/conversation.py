"""The messages of a request as those of chat completions.

1. Messages of the user that follow each other are one, as Anthropic reads them.
2. Each result of a tool is a message, in front of the user's words beside it: model servers insist on that.
3. Thoughts whose signature a provider made go on as `reasoning_details`, byte for byte, with their places in the
   answer; other thoughts go on as `reasoning_content`.
4. A call of a gateway's tool, and its result, end a part of an answer: what follows is another message of the
   assistant.
5. What is for the model's server alone has no content: it stands under `messages_api` of its message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.chat_request import PROGRAM_TEXTS
from gateway.dialects.field_checks import (
    OBJECT,
    TEXT,
    TRUTH,
    Kind,
    build_enum_kind,
    build_short_text_kind,
    check_object_fields,
    mark_required,
    refuse,
)
from gateway.dialects.merged_messages import join
from gateway.dialects.messages.blocks import (
    Place,
    build_unknown_block_error,
    convert_part,
    convert_text,
    get_parts,
    simplify,
)
from gateway.dialects.messages.client_programs import is_billing_line
from gateway.dialects.messages.thoughts import THOUGHT_FIELDS, BlockPlace, Thoughts
from gateway.dialects.offered_tools import build_tool_name

_ROLES: Final = ("user", "assistant", "system")
_ID_CHARS: Final = 128
_ID: Final = build_short_text_kind(_ID_CHARS)
_MESSAGE: Final[Mapping[str, Kind]] = {"role": TEXT, "content": Kind(lambda _: True, "")}
_SYSTEM_MESSAGE: Final[Mapping[str, Kind]] = {
    **_MESSAGE,
    "output_config": OBJECT,
    "clear_at": build_enum_kind("next_user_message", "never"),
}
_TOOL_RESULT: Final[Mapping[str, Kind]] = {
    "type": TEXT,
    "tool_use_id": mark_required(_ID),
    "content": Kind(lambda value: type(value) in (str, list), "text, or a list of blocks"),
    "is_error": TRUTH,
    "cache_control": OBJECT,
    "toolset_name": TEXT,
}
_CALL: Final[Mapping[str, Kind]] = {
    "type": TEXT,
    "id": mark_required(_ID),
    "name": mark_required(build_short_text_kind(_ID_CHARS)),
    "input": mark_required(OBJECT),
    "cache_control": OBJECT,
}
_TOOL_USE: Final[Mapping[str, Kind]] = {**_CALL, "caller": OBJECT, "toolset_name": TEXT}
_MCP_TOOL_USE: Final[Mapping[str, Kind]] = {**_CALL, "server_name": mark_required(build_short_text_kind(_ID_CHARS))}
#: Fields of a call that chat completions lack.
_BESIDE_CALLS: Final = ("cache_control", "caller", "toolset_name")
_RESULT_TYPES: Final = ("text", "image", "document", "search_result")
_ANSWER_TYPES: Final = ("text", "thinking", "redacted_thinking", "tool_use", "mcp_tool_use", "mcp_tool_result")
_CUT: Final = (
    "The call was started, and its turn was cut before it ended. What became of it is unknown: it may have run or not. "
    "Look first, before you call it again."
)
_FAILED: Final = "The tool failed, and says nothing about it."


@dataclass(slots=True)
class _OpenAnswer:
    """The message of the assistant that blocks are added to. `outputs` are the results of the gateway's calls in it."""

    texts: list[Json] = field(default_factory=list)
    thoughts: Thoughts = field(default_factory=Thoughts)
    calls: list[Json] = field(default_factory=list)
    outputs: dict[str, Json | None] = field(default_factory=dict)
    n_blocks: int = 0
    n_chars: int = 0


class MessagesConversation:
    """The messages of a conversation, as they are added. `thoughts` are those of its models, each by itself.

    `text` is the last message, if it is the user's and nothing but text. `results` are label and name of each tool of
    the gateway whose result the conversation contains.
    """

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self.thoughts: list[str] = []
        self.results: dict[tuple[str, str], None] = {}
        self.text = ""
        self._open = _OpenAnswer()
        self._awaited: dict[str, None] = {}  # ids of the client's calls in the last answer without results
        self._is_user_open = False  # the last message is the user's, and a further one of the user goes on with it

    def add_system(self, system: object) -> None:
        """Add the system prompt of a request. Raises GatewayError."""
        if isinstance(system, list):
            parts = [
                convert_system_text(f"system[{i}]", block)
                for i, block in enumerate(get_parts(lambda: "system", system))
            ]
            lines = [part for part in parts if is_billing_line(part["text"])]
            if lines:
                self.messages.append({"role": "system", "content": "", "messages_api": {"content": lines}})
                parts = [part for part in parts if not is_billing_line(part["text"])]
            if parts:
                self.messages.append({"role": "system", "content": simplify(parts)})
        elif system:
            self.messages.append({"role": "system", "content": system})

    def add_all(self, messages: Sequence[object]) -> None:
        """Add the messages of a request. Raises GatewayError."""
        for i, message in enumerate(messages):
            if type(message) is not dict:
                refuse(f"messages[{i}]", "an object with 'role' and 'content'")
            role = message.get("role")
            if role == "user":
                self._add_user_message(i, message)
            elif role == "assistant":
                self._add_answer(i, message)
            elif role == "system":
                self._add_system_message(i, message)
            else:
                refuse(f"messages[{i}].role", f"one of {', '.join(_ROLES)}")
        if self._awaited:
            self._refuse_missing_results(f"messages[{len(messages) - 1}]")

    def _add_system_message(self, i: int, message: Json) -> None:
        """Add a system message. One without a text only sets how its model answers from there on."""
        check_object_fields(f"messages[{i}]", message, _SYSTEM_MESSAGE, closed=True)
        content = message.get("content")
        found: Json = {"role": "system", "content": ""}
        if content:
            place = f"messages[{i}].content"
            blocks = get_parts(lambda: place, content)
            found["content"] = simplify([convert_system_text(f"{place}[{j}]", block) for j, block in enumerate(blocks)])
        own = {name: value for name, value in message.items() if name not in _MESSAGE and value is not None}
        if own:
            found["messages_api"] = own
        if found["content"] or own:
            self._is_user_open = False
            self.messages.append(found)

    # Messages of the user.

    def _add_user_message(self, i: int, message: Json) -> None:
        """Add a message of the user: the results in it, then its other blocks."""
        if len(message) > 2:
            check_object_fields(f"messages[{i}]", message, _MESSAGE, closed=True)
        content = message.get("content")
        text = _find_only_text(content)
        if text is not None and not text.startswith(PROGRAM_TEXTS):
            own, n_results = message if text is content else {"role": "user", "content": text}, 0
            self.text = text
        else:
            whole: tuple[list[Json], int] = ([{"type": "text", "text": text}], 0)
            parts, n_results = self._convert_blocks(i, content) if text is None else whole
            own = {"role": "user", "content": _simplify_typed(parts)}
            self.text = "" if n_results else _join_typed_texts(parts)
        if self._awaited:
            self._refuse_missing_results(f"messages[{i}]")
        if not own["content"]:
            return
        if self._is_user_open and not n_results:
            self.messages[-1] = join(self.messages[-1], own)
        else:
            self.messages.append(own)
        self._is_user_open = True

    def _convert_blocks(self, i: int, content: object) -> tuple[list[Json], int]:
        """Return the blocks of a user as parts, without the results in front, and the number of these."""
        parts: list[Json] = []
        n_results = 0
        for j, block in enumerate(get_parts(lambda: f"messages[{i}].content", content)):
            place = partial(_format_place, i, j)
            if block.get("type") == "tool_result":
                n_results += 1
                self._add_result(place(), block)
            else:
                parts.append(convert_part(place, block))
        return parts, n_results

    def _add_result(self, place: str, block: Json) -> None:
        """Add the result of a call of the client's as a message. Raises GatewayError."""
        check_object_fields(place, block, _TOOL_RESULT, closed=True)
        call_id = block["tool_use_id"]
        if call_id not in self._awaited:
            text = f"'{place}.tool_use_id' is no call of the message before: a result stands behind its tool_use."
            raise GatewayError("invalid_field", text, param=f"{place}.tool_use_id")
        del self._awaited[call_id]
        found: Json = {"role": "tool", "tool_call_id": call_id, "content": _convert_result(place, block)}
        if block.get("is_error"):
            found["is_error"] = True
            found["content"] = found["content"] or _FAILED
        if block.get("cache_control") is not None:
            found["cache_control"] = block["cache_control"]
        self._is_user_open = False
        self.messages.append(found)

    def _refuse_missing_results(self, place: str) -> None:
        """Refuse a message behind calls of the client's whose results are missing. Raises GatewayError."""
        call_id = next(iter(self._awaited))
        text = f"'{place}': the call '{call_id}' has no result: send its tool_result in the message behind it."
        raise GatewayError("invalid_field", text, param=place)

    # Messages of the assistant.

    def _add_answer(self, i: int, message: Json) -> None:
        """Add a message of the assistant, block by block."""
        if len(message) > 2:
            check_object_fields(f"messages[{i}]", message, _MESSAGE, closed=True)
        if self._awaited:
            self._refuse_missing_results(f"messages[{i}]")
        self.text, self._is_user_open = "", False
        content = message.get("content")
        if (text := _find_only_text(content)) is not None:
            self.messages.append(message if text is content else {"role": "assistant", "content": text})
            return
        for j, block in enumerate(get_parts(lambda: f"messages[{i}].content", content)):
            self._add_block(partial(_format_place, i, j), block)
        self._close_answer()

    def _add_block(self, place: Place, block: Json) -> None:
        """Add a block to the open message. Raises GatewayError."""
        answer, kind = self._open, block.get("type")
        if answer.outputs and kind not in ("mcp_tool_use", "mcp_tool_result"):
            self._close_answer()
            answer = self._open
        match kind:
            case "text":
                answer.texts.append(part := convert_text(place, block))
                answer.n_chars += len(part["text"])
            case "thinking" | "redacted_thinking":
                check_object_fields(place(), block, THOUGHT_FIELDS[kind], closed=True)
                where = BlockPlace(answer.n_blocks, answer.n_chars, len(answer.calls))
                self.thoughts += answer.thoughts.add(block, where)
            case "tool_use":
                check_object_fields(place(), block, _TOOL_USE, closed=True)
                answer.calls.append(_build_call(block, block["name"]))
                self._awaited[block["id"]] = None
            case "mcp_tool_use":
                check_object_fields(place(), block, _MCP_TOOL_USE, closed=True)
                label, name = block["server_name"], block["name"]
                answer.calls.append(_build_call(block, build_tool_name(label, name)))
                answer.outputs[block["id"]] = None
                self.results.setdefault((label, name))
            case "mcp_tool_result":
                self._add_own_result(place, block)
            case _:
                raise build_unknown_block_error(f"{place()}.type", kind, _ANSWER_TYPES)
        answer.n_blocks += 1

    def _add_own_result(self, place: Place, block: Json) -> None:
        """Add the result of a call of a gateway's tool, which stands in the message of the call."""
        check_object_fields(place(), block, _TOOL_RESULT, closed=True)
        call_id = block["tool_use_id"]
        if call_id not in self._open.outputs:
            text = f"'{place()}.tool_use_id' is no mcp_tool_use of this message: a result stands behind its call."
            raise GatewayError("invalid_field", text, param=f"{place()}.tool_use_id")
        content = _convert_result(place(), block) or (_FAILED if block.get("is_error") else "")
        self._open.outputs[call_id] = {"role": "tool", "tool_call_id": call_id, "content": content}

    def _close_answer(self) -> None:
        """Add the open message of the assistant, with the results of the gateway's calls in it behind it."""
        answer, self._open = self._open, _OpenAnswer()
        message: Json = {"role": "assistant", "content": _merge_texts(answer.texts)}
        message |= answer.thoughts.build_fields(answer.calls)
        if answer.calls:
            message["tool_calls"] = answer.calls
        elif message["content"] is None:
            message["content"] = ""
        self.messages.append(message)
        for call_id, output in answer.outputs.items():
            self.messages.append(output or {"role": "tool", "tool_call_id": call_id, "content": _CUT})


def _find_only_text(content: object) -> str | None:
    """Return the text of a content that is nothing else, as most are; None for any other."""
    if type(content) is str:
        return content
    if type(content) is not list or len(content) != 1:
        return None
    block = content[0]
    if type(block) is not dict or len(block) != 2 or block.get("type") != "text":
        return None
    text = block.get("text")
    return text if type(text) is str else None


def _format_place(i: int, j: int) -> str:
    """Return the place of a block of a message."""
    return f"messages[{i}].content[{j}]"


def _format_inner_place(place: str, j: int) -> str:
    """Return the place of a block of a result."""
    return f"{place}.content[{j}]"


def convert_system_text(place: str, block: Json) -> Json:
    """Return a block of a system prompt, which is a text. Raises GatewayError."""
    if block.get("type") != "text":
        raise build_unknown_block_error(f"{place}.type", block.get("type"), ("text",))
    return convert_text(lambda: place, block)


def _convert_result(place: str, block: Json) -> str | list[Json]:
    """Return the content of a result: a text, or a list of parts."""
    content = block.get("content")
    if content is None or type(content) is str:
        return content or ""
    parts = [
        convert_part(partial(_format_inner_place, place, j), part, among=_RESULT_TYPES)
        for j, part in enumerate(get_parts(lambda: f"{place}.content", content))
    ]
    return simplify(parts) if parts else ""


def _build_call(block: Json, name: str) -> Json:
    """Return a call as chat completions have it."""
    function = {"name": name, "arguments": orjson.dumps(block["input"]).decode()}
    call: Json = {"id": block["id"], "type": "function", "function": function}
    return call | {name: block[name] for name in _BESIDE_CALLS if block.get(name) is not None}


def _merge_texts(texts: list[Json]) -> str | list[Json] | None:
    """Return the texts of an answer: one text, or parts if one of them has something beside it."""
    if not texts:
        return None
    if any(len(part) > 2 for part in texts):
        return texts
    return "".join([part["text"] for part in texts])


def _simplify_typed(parts: list[Json]) -> str | list[Json]:
    """Return parts as a text, if they are one text of the user's: a program's stays a part, by which it is known."""
    return parts if any(part.get("text", "").startswith(PROGRAM_TEXTS) for part in parts) else simplify(parts)


def _join_typed_texts(parts: Sequence[Json]) -> str:
    """Return the words of a user, without reminders of their program; "" if there is anything but text."""
    if any(part["type"] != "text" for part in parts):
        return ""
    return "\n".join([part["text"] for part in parts if not part["text"].startswith(PROGRAM_TEXTS)])
