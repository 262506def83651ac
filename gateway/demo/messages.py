"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import orjson

from gateway.demo.conversation import (
    Conversation,
    ConversationEntry,
    Json,
    RefusalError,
    classify_text,
    is_json,
    read_conversation,
    read_list,
    read_texts,
)
from gateway.demo.dialect import DemoDialect, call_id, format_event
from gateway.demo.functions import Functions, read_functions
from gateway.demo.script import DemoAnswer, Finish, split_pieces
from gateway.demo.words import ScriptedCall

_STOP_REASONS: Final[Mapping[Finish, str]] = MappingProxyType(
    {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
)
_CHOICES: Final[Mapping[str, str]] = MappingProxyType({"any": "required", "none": "none"})
_SIGNATURE: Final = "ZGVtbw=="  # what a thinking block is sent back with; here it proves nothing
_BROKEN: Final = "__broken_json"


def read(body: Json) -> Conversation:
    entries = [ConversationEntry("system", read_texts(body.get("system"), param="system"))]
    for message in read_list(body, "messages"):
        entries += _read_message(message)
    return read_conversation(body, entries=entries, max_tokens=("max_tokens",), functions=_read_functions(body))


def render(answer: DemoAnswer) -> Json:
    return {
        **_build_message(answer, output_tokens=answer.completion_tokens),
        "content": [block for block, _ in _build_blocks(answer)],
        "stop_reason": _STOP_REASONS[answer.finish],
    }


def iterate_frames(answer: DemoAnswer, _: Conversation) -> Iterator[bytes]:
    yield _format_frame("message_start", message=_build_message(answer, output_tokens=0))
    yield _format_frame("ping")
    for index, (block, deltas) in enumerate(_build_blocks(answer)):
        yield _format_frame("content_block_start", index=index, content_block=_strip_content(block))
        for delta in deltas:
            yield _format_frame("content_block_delta", index=index, delta=delta)
        yield _format_frame("content_block_stop", index=index)
    ending = {"stop_reason": _STOP_REASONS[answer.finish], "stop_sequence": None}
    yield _format_frame("message_delta", delta=ending, usage={"output_tokens": answer.completion_tokens})
    yield _format_frame("message_stop")


def _read_functions(body: Json) -> Functions:
    """Return the functions of a request: its tools with a schema. The others run at the provider."""
    tools = body.get("tools")
    functions = [
        {"type": "function", "name": tool.get("name"), "parameters": tool["input_schema"]}
        for tool in (tools if isinstance(tools, list) else ())
        if isinstance(tool, dict) and "input_schema" in tool
    ]
    return read_functions(functions, choice=_convert_choice(body.get("tool_choice")))


def _convert_choice(choice: object) -> object:
    """Return the choice of a tool as OpenAI's APIs write it."""
    if not isinstance(choice, dict):
        return None
    kind = choice.get("type")
    return {**choice, "type": "function"} if kind == "tool" else _CHOICES.get(str(kind))


def _read_message(message: Json) -> list[ConversationEntry]:
    """Return the entries of a message; tool results beside the user's words become separate entries before them."""
    role, content = message.get("role"), message.get("content")
    texts = read_texts(content, param="messages")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    match role:
        case "system":
            return [ConversationEntry("system", texts)]
        case "assistant":
            inputs = [block.get("input") for block in blocks if block.get("type") == "tool_use"]
            return [_read_calls(inputs)] if inputs else [classify_text(texts)]
        case "user":
            results = [block for block in blocks if block.get("type") == "tool_result"]
            entries = [ConversationEntry("result", ("\n".join(_read_result(block)),)) for block in results]
            return [*entries, ConversationEntry("user", texts)] if texts or not entries else entries
        case _:
            raise RefusalError(f"A message has the role {role!r}. Use user or assistant.", param="messages")


def _read_calls(inputs: list[object]) -> ConversationEntry:
    is_whole = all(isinstance(arguments, dict) and _BROKEN not in arguments for arguments in inputs)
    return ConversationEntry(
        "call" if is_whole else "broken_call", tuple(orjson.dumps(arguments).decode() for arguments in inputs)
    )


def _read_result(block: Json) -> tuple[str, ...]:
    return read_texts(block.get("content"), param="messages")


def _build_message(answer: DemoAnswer, *, output_tokens: int) -> Json:
    return {
        "id": f"msg_{answer.digest[:24]}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": answer.prompt_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": output_tokens,
        },
    }


def _build_blocks(answer: DemoAnswer) -> list[tuple[Json, list[Json]]]:
    """Return the finished blocks, each with the deltas that a stream builds it from."""
    blocks: list[tuple[Json, list[Json]]] = []
    if answer.thoughts:
        thinking: Json = {"type": "thinking", "thinking": "".join(answer.thoughts), "signature": _SIGNATURE}
        deltas: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in answer.thoughts]
        blocks.append((thinking, [*deltas, {"type": "signature_delta", "signature": _SIGNATURE}]))
    if answer.text:
        text = {"type": "text", "text": "".join(answer.text)}
        blocks.append((text, [{"type": "text_delta", "text": piece} for piece in answer.text]))
    for index, call in enumerate(answer.calls):
        use: Json = {
            "type": "tool_use",
            "id": call_id("toolu", digest=answer.digest, index=index),
            "name": call.name,
            "input": _parse_input(call),
        }
        blocks.append(
            (use, [{"type": "input_json_delta", "partial_json": piece} for piece in split_pieces(call.arguments)])
        )
    return blocks


def _strip_content(block: Json) -> Json:
    """Return the block as the stream announces it, without content."""
    match block["type"]:
        case "thinking":
            return {**block, "thinking": "", "signature": ""}
        case "text":
            return {**block, "text": ""}
        case _:
            return {**block, "input": {}}


def _parse_input(call: ScriptedCall) -> Json:
    """Return the arguments as the object that this API wants; broken arguments are wrapped in one."""
    if not is_json(call.arguments):
        return {_BROKEN: call.arguments}
    arguments: Json = orjson.loads(call.arguments)
    return arguments


def _format_frame(kind: str, **fields: object) -> bytes:
    return format_event({"type": kind, **fields}, event=kind)


MESSAGES: Final = DemoDialect(read=read, render=render, frames=iterate_frames)
