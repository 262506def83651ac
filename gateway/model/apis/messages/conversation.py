"""The messages of a chat as turns of Messages: roles in turn, results right behind their calls, thoughts in place.

The API refuses a call without its result right behind it, and a result without its call. Clients shorten and edit
conversations. So a call whose result is missing gets one that says so, and a result without a call becomes text.

Instructions in the middle of a chat are a turn of the system where the API has room for one: right behind the user's
turn, and at the end or in front of an answer. Elsewhere, and for models from before, they are marked text of the user.
What only Messages have beside such a message (`messages_api`) stands in its turn again, or in the system prompt.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import orjson

from gateway.contracts.storage.store import Json
from gateway.dialects.merged_messages import SYSTEM_ROLES
from gateway.dialects.message_identity import get_content_text
from gateway.model.adaptation.tool_names import build_plain_name
from gateway.model.apis.messages.parts import build_blocks, build_text
from gateway.model.apis.messages.thoughts import extract_blocks
from gateway.model.apis.placed_blocks import list_claimed_thoughts, order_blocks

_ID: Final = re.compile(r"[0-9A-Za-z_-]+")
_NOT_IN_ID: Final = re.compile(r"[^0-9A-Za-z_-]")
_MISSING: Final = "The result of this call is not in the conversation."
_BEGINNING: Final = "."
#: Fields of a call beside chat's that belong to it here, too.
_OF_CALLS: Final = ("caller", "toolset_name", "cache_control")
#: The version of a program, for the model's server: names and short values, as no stage has looked at it.
_VERSION_LINE: Final = re.compile(r"x-anthropic-billing-header:(?: ?[A-Za-z_]{1,32}=[0-9A-Za-z._-]{0,64};?){1,16}")
#: Fields of a turn of the system, with the type of their values.
_OF_TURNS: Final[Mapping[str, type]] = MappingProxyType({"clear_at": str, "output_config": dict})


def build_conversation(messages: Sequence[Json], *, system_turns: bool = True) -> tuple[list[Json], list[Json]]:
    """Return the blocks of the system prompt, and the turns. `system_turns`: the model takes some of the system."""
    end = 0
    while end < len(messages) and messages[end].get("role") in SYSTEM_ROLES:
        end += 1
    system = [block for message in messages[:end] for block in _build_prompt(message)]
    writer = _TurnWriter(list_claimed_thoughts(messages), system_turns=system_turns)
    for message in messages[end:]:
        writer.add(message)
    turns = writer.finish()
    if not turns:  # a chat may consist of instructions alone
        return [], [{"role": "user", "content": system or [build_text(_BEGINNING)]}]
    if turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [build_text(_BEGINNING)]})
    return system, turns


class _TurnWriter:
    """The turns of a conversation, as its messages come. `_open` maps the ids of calls without a result to theirs."""

    def __init__(self, claimed: frozenset[str], *, system_turns: bool) -> None:
        self._claimed = claimed
        self._system_turns = system_turns
        self._turns: list[Json] = []
        self._open: dict[str, str] = {}
        self._ids: dict[str, int] = {}  # of calls, each with the number of the last one that it stands for
        self._results = 0  # at the beginning of the user's last turn
        self._signatures: set[str] = set()

    def add(self, message: Json) -> None:
        """Add the blocks of a message to the last turn, or begin one."""
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            self._close_calls()
            self._append("assistant", self._build_answer(message))
        elif role in ("tool", "function"):
            self._add_result(message)
        elif role in SYSTEM_ROLES:
            self._add_instructions(build_blocks(content), _get_own_fields(message))
        else:
            self._append("user", build_blocks(content))

    def finish(self) -> list[Json]:
        """Return the turns. The text that an answer is to begin with ends without white space: the API refuses it."""
        self._close_calls()
        if self._turns and self._turns[-1]["role"] == "assistant":
            last = self._turns[-1]["content"][-1]
            if last["type"] == "text":
                last["text"] = last["text"].rstrip()
        return self._turns

    def _append(self, role: str, blocks: list[Json]) -> None:
        if not blocks:
            return
        if role == "user" and self._turns and self._turns[-1]["role"] == "system":
            self._append("user", _wrap_instructions(self._turns.pop()["content"]))
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1]["content"] += blocks
        else:
            self._begin_turn(role, blocks)

    def _begin_turn(self, role: str, blocks: list[Json]) -> None:
        self._turns.append({"role": role, "content": blocks})
        if role == "user":
            self._results = 0

    def _add_instructions(self, blocks: list[Json], own: Json) -> None:
        """Add a system message behind the beginning of the chat. `own` are the fields of its turn, if it gets one.

        Of two side by side that differ in them, neither has any.
        """
        is_text = all(block["type"] == "text" for block in blocks)
        if not (self._system_turns and is_text and self._turns and self._turns[-1]["role"] != "assistant"):
            self._append("user", _wrap_instructions(blocks))
        elif self._turns[-1]["role"] != "system":
            if blocks or own:
                self._turns.append({"role": "system", "content": blocks, **own})
        else:
            turn = self._turns[-1]
            turn["content"] += blocks
            if {name: turn[name] for name in _OF_TURNS if name in turn} != own:
                self._turns[-1] = {"role": "system", "content": turn["content"]}

    def _add_result(self, message: Json) -> None:
        """Add the result of a call in front of what else its turn has, behind other results."""
        name = message.get("tool_call_id")
        if name is None:  # of the API before `tools`, which has one call at a time
            name = next(iter(self._open), None)
        content = message.get("content")
        if not isinstance(name, str) or name not in self._open:
            self._append("user", [build_text(f"Result of the tool call {name!r}:"), *build_blocks(content)])
            return
        result: Json = {"type": "tool_result", "tool_use_id": self._open.pop(name)}
        if shown := build_blocks(content):
            result["content"] = content if isinstance(content, str) else shown
        if message.get("is_error") is True:
            result["is_error"] = True
        if isinstance(mark := message.get("cache_control"), dict):
            result["cache_control"] = mark
        self._insert_results([result])

    def _insert_results(self, results: list[Json]) -> None:
        if self._turns[-1]["role"] == "assistant":
            self._begin_turn("user", [])
        turn = self._turns[-2 if self._turns[-1]["role"] == "system" else -1]
        turn["content"][self._results : self._results] = results
        self._results += len(results)

    def _close_calls(self) -> None:
        """Give each call a result that has none, before the next answer or the end."""
        if self._open:
            missing = [
                {"type": "tool_result", "tool_use_id": own, "content": _MISSING, "is_error": True}
                for own in self._open.values()
            ]
            self._open.clear()
            self._insert_results(missing)

    def _build_answer(self, message: Json) -> list[Json]:
        """Return the blocks of an answer: thoughts, texts and calls in the order in which the model wrote them."""
        texts, calls = build_blocks(message.get("content")), self._build_calls(message)
        if not (details := message.get("reasoning_details")):  # as in most chats
            return [*texts, *calls]
        claimed = frozenset[str]() if calls else self._claimed
        placed = extract_blocks(details, self._signatures, claimed)
        return order_blocks(texts, calls, placed)

    def _build_calls(self, message: Json) -> list[Json]:
        calls = message.get("tool_calls")
        if not isinstance(calls, list):
            function = message.get("function_call")
            calls = [{"function": function}] if isinstance(function, dict) else []
        return [self._build_call(call) for call in calls if isinstance(call, dict)]

    def _build_call(self, call: Json) -> Json:
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        name = str(call.get("id") or f"call_{len(self._ids)}")
        own = plain = name if _ID.fullmatch(name) else _NOT_IN_ID.sub("_", name)
        while own in self._ids:  # some servers begin to count with each answer
            self._ids[plain] += 1
            own = f"{plain}_{self._ids[plain]}"
        self._ids[own] = 1
        self._open[name] = own
        block = {"type": "tool_use", "id": own, "name": build_plain_name(str(function.get("name") or "unknown"))}
        further = {field: call[field] for field in _OF_CALLS if call.get(field) is not None}
        return {**block, "input": _build_input(function.get("arguments")), **further}


def _build_prompt(message: Json) -> list[Json]:
    """Return the blocks of a system message: the version of a program, and its text."""
    own = message.get("messages_api")
    lines = own.get("content") if isinstance(own, dict) else None
    blocks = build_blocks(lines) if isinstance(lines, list) else []
    versions = [block for block in blocks if block["type"] == "text" and _VERSION_LINE.fullmatch(block["text"])]
    return [*versions, *build_blocks(message.get("content"))]


def _get_own_fields(message: Json) -> Json:
    """Return the fields that only Messages have for a turn of the system."""
    own = message.get("messages_api")
    if not isinstance(own, dict):
        return {}
    return {name: own[name] for name, kind in _OF_TURNS.items() if isinstance(own.get(name), kind)}


def _build_input(arguments: object) -> object:
    """Return the arguments of a call as an object, as they were written. What is none stands in one."""
    if isinstance(arguments, dict):
        return arguments
    text = arguments if isinstance(arguments, str) else ""
    if not text.strip():
        return {}
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {"arguments": text.encode(errors="replace").decode()}
    return orjson.Fragment(text) if isinstance(parsed, dict) else {"arguments": parsed}


def _wrap_instructions(blocks: list[Json]) -> list[Json]:
    """Return instructions in the middle of a chat as the user's text that shows where it comes from."""
    text = get_content_text(blocks)
    others = [block for block in blocks if block["type"] != "text"]
    return [*([build_text(f"<system>\n{text}\n</system>")] if text else []), *others]
