"""POST /v1/responses: OpenAI's Responses; nothing is stored, so `previous_response_id` is not looked up."""

import itertools
from collections.abc import Iterator
from typing import Final

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
from gateway.demo.functions import read_functions
from gateway.demo.script import CREATED, DemoAnswer, split_pieces


def read(body: Json) -> Conversation:
    entries = [ConversationEntry("system", read_texts(body.get("instructions"), param="instructions"))]
    if isinstance(body.get("input"), str):
        entries.append(ConversationEntry("user", (body["input"],)))
    else:
        entries += [entry for item in read_list(body, "input") if (entry := _read_item(item)) is not None]
    functions = read_functions(body.get("tools"), choice=body.get("tool_choice"))
    return read_conversation(body, entries=entries, max_tokens=("max_output_tokens",), functions=functions)


def render(answer: DemoAnswer) -> Json:
    status = "incomplete" if answer.finish == "length" else "completed"
    return {**_build_response(answer, status=status), "output": _build_items(answer), "usage": _build_usage(answer)}


def iterate_frames(answer: DemoAnswer, _: Conversation) -> Iterator[bytes]:
    number = itertools.count()

    def format_frame(kind: str, **fields: object) -> bytes:
        return format_event({"type": kind, "sequence_number": next(number), **fields}, event=kind)

    opening = _build_response(answer, status="in_progress")
    yield format_frame("response.created", response=opening)
    yield format_frame("response.in_progress", response=opening)
    for index, item in enumerate(_build_items(answer)):
        yield format_frame("response.output_item.added", output_index=index, item=_strip_content(item))
        for kind, fields in _build_item_events(item, answer=answer):
            yield format_frame(kind, item_id=item["id"], output_index=index, **fields)
        yield format_frame("response.output_item.done", output_index=index, item=item)
    closing = render(answer)
    yield format_frame(f"response.{closing['status']}", response=closing)


def _read_item(item: Json) -> ConversationEntry | None:
    kind = item.get("type", "message")
    if kind == "message":
        texts = read_texts(item.get("content"), param="input")
        role = item.get("role")
        if role == "assistant":
            return classify_text(texts)
        if role not in ("user", "system", "developer"):
            raise RefusalError(
                f"A message has the role {role!r}. Use system, developer, user or assistant.", param="input"
            )
        return ConversationEntry("user" if role == "user" else "system", texts)
    if not isinstance(kind, str):
        raise RefusalError(f"An item of 'input' has the type {kind!r}. Use a string, such as 'message'.", param="input")
    if kind.endswith("_call_output"):
        return ConversationEntry("result", ("\n".join(read_texts(item.get("output"), param="input")),))
    if kind.endswith("_call"):
        arguments = str(item.get("arguments") or "")
        return ConversationEntry("call" if is_json(arguments) else "broken_call", (arguments,))
    return None  # reasoning, references and what else the API may come to know


def _build_response(answer: DemoAnswer, *, status: str) -> Json:
    incomplete = {"reason": "max_output_tokens"} if status == "incomplete" else None
    return {
        "id": f"resp_{answer.digest[:24]}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "background": False,
        "completed_at": CREATED if status == "completed" else None,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": incomplete,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "model": answer.model,
        "output": [],
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
    }


def _build_usage(answer: DemoAnswer) -> Json:
    return {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": answer.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": len(answer.thoughts)},
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }


def _build_items(answer: DemoAnswer) -> list[Json]:
    """Return the finished items of the output, in order."""
    items: list[Json] = []
    if answer.thoughts:
        summary = [{"type": "summary_text", "text": "".join(answer.thoughts)}]
        items.append({"id": f"rs_{answer.digest[:24]}", "type": "reasoning", "summary": summary})
    if not answer.calls:
        items.append(
            {
                "id": f"msg_{answer.digest[:24]}",
                "type": "message",
                "role": "assistant",
                "status": "incomplete" if answer.finish == "length" else "completed",
                "content": [_build_text_part("".join(answer.text))],
            }
        )
    for index, call in enumerate(answer.calls):
        items.append(
            {
                "id": call_id("fc", digest=answer.digest, index=index),
                "type": "function_call",
                "call_id": call_id("call", digest=answer.digest, index=index),
                "name": call.name,
                "arguments": call.arguments,
                "status": "completed",
            }
        )
    return items


def _strip_content(item: Json) -> Json:
    """Return the item as the stream announces it, without content."""
    match item["type"]:
        case "reasoning":
            return {**item, "summary": []}
        case "message":
            return {**item, "status": "in_progress", "content": []}
        case _:
            return {**item, "status": "in_progress", "arguments": ""}


def _build_item_events(item: Json, *, answer: DemoAnswer) -> Iterator[tuple[str, Json]]:
    """Yield the events between an item's announcement and its end."""
    match item["type"]:
        case "reasoning":
            at = {"summary_index": 0}
            yield "response.reasoning_summary_part.added", {**at, "part": {"type": "summary_text", "text": ""}}
            for piece in answer.thoughts:
                yield "response.reasoning_summary_text.delta", {**at, "delta": piece}
            yield "response.reasoning_summary_text.done", {**at, "text": item["summary"][0]["text"]}
            yield "response.reasoning_summary_part.done", {**at, "part": item["summary"][0]}
        case "message":
            at = {"content_index": 0}
            yield "response.content_part.added", {**at, "part": _build_text_part("")}
            for piece in answer.text:
                yield "response.output_text.delta", {**at, "delta": piece, "logprobs": []}
            yield "response.output_text.done", {**at, "text": item["content"][0]["text"], "logprobs": []}
            yield "response.content_part.done", {**at, "part": item["content"][0]}
        case _:
            for piece in split_pieces(item["arguments"]):
                yield "response.function_call_arguments.delta", {"delta": piece}
            yield "response.function_call_arguments.done", {"name": item["name"], "arguments": item["arguments"]}


def _build_text_part(text: str) -> Json:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


RESPONSES: Final = DemoDialect(read=read, render=render, frames=iterate_frames)
