"""Items as the messages of a chat completion, and the request for models that a response is made of.

1. Calls follow the text and the thoughts before them in one message. Each output stands behind the message with its
   call, wherever the client put it: model servers insist on that.
2. Models get instructions as `system`, which all of them know; `developer` is the same to OpenAI.
3. A call of a gateway's tool has its output in itself. Lists of tools, questions and decisions are not for models.
4. Tool messages are text. Images and files of an output follow as a message of the user.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.chat_request import get_whole_text, lets_server_search, list_provider_blocks
from gateway.dialects.dialect import ParsedRequest, Wishes
from gateway.dialects.message_identity import get_content_text
from gateway.dialects.offered_tools import build_tool_name
from gateway.dialects.packed_reasoning import ReasoningContent, unpack_reasoning
from gateway.dialects.responses.call_outputs import Pairs, pair_items
from gateway.dialects.responses.calls import (
    EXACT,
    NO_ARGUMENTS,
    ClientTool,
    build_chat_call,
    build_model_name,
    get_arguments,
)
from gateway.dialects.responses.decisions import find_user_messages, list_last_questions, parse_decisions
from gateway.dialects.responses.fields import convert_for_models
from gateway.dialects.responses.ids import find_request_id
from gateway.dialects.responses.items import COMPACTION, OUTPUT_OF, OUTPUTS, is_without_output
from gateway.dialects.responses.parts import convert_to_chat_content, get_text, split_text_and_files
from gateway.dialects.responses.request import ResponseRequest

_ROLES: Final[Mapping[str, str]] = {"user": "user", "system": "system", "developer": "system"}
_SUMMARY: Final = "Summary of the conversation so far:\n\n"
_NOT_SHOWN: Final = "The call was made. Its output is not in this conversation."
_CUT: Final = (
    "The call was started, and its turn was cancelled before it ended. What became of it is unknown: it may have run "
    "or not. Look first, before you call it again."
)
_OF_CALL: Final = ("type", "server_label", "name", "arguments", "output", "error")
_FILES: Final = "The output is in the next message."


@dataclass(slots=True, kw_only=True)
class ResponseAsked(ParsedRequest):
    """A request for a response, with what its answer needs of it.

    `items` are the input items of the request itself, and the items that it refers to. `client_tools` are the client's
    tools by the names that models know. `listed` are the labels whose tools the conversation shows already.
    """

    request: ResponseRequest
    items: tuple[Json, ...]
    client_tools: Mapping[str, ClientTool]
    left_out: tuple[str, ...]
    listed: frozenset[str]


def resolve_request(
    request: ResponseRequest,
    *,
    earlier: Sequence[Json] = (),
    referenced: Mapping[str, Json] | None = None,
    unseal: Callable[[str], str],
) -> ResponseAsked:
    """Return the request for models.

    `earlier` are the items of the chain or conversation that it goes on with, oldest first; `referenced` are the items
    that it refers to, by their ids. `unseal` opens the summary of a compaction, and raises ValueError for a foreign
    one. Raises GatewayError.
    """
    own = _resolve_references(request, referenced or {})
    items = [*earlier, *own]
    places = _Places(request, len(earlier))
    pairs = pair_items(items, place=places.format_place)
    conversation = _Conversation(pairs, unseal, places)
    conversation.add_all([*request.instructions, *items], first=-len(request.instructions))
    decisions = parse_decisions(own, earlier, place=places.format_own_place)
    messages = conversation.messages
    if not messages and not decisions:
        raise GatewayError(
            "missing_field", "'input' has nothing that a model could answer: add a message.", param="input"
        )
    tools, fields = request.tools, request.fields
    body: Json = {**convert_for_models(fields), "messages": messages, **_build_tool_fields(request)}
    wishes = Wishes(
        offers=tools.offers,
        no_tools=tools.no_tools,
        must_call=tools.must_call,
        max_tool_calls=fields.get("max_tool_calls"),
        exact_tools={name: EXACT[tool.kind] for name, tool in tools.client.items() if tool.kind in EXACT},
        tainted=conversation.tainted
        or lets_server_search(body)
        or any(map(list_provider_blocks, messages))
        or not _are_stored(own, referenced or {}),
        thoughts=tuple(conversation.all_thoughts),
        answer_ids=conversation.answer_ids,
        known_as=() if request.conversation_id is None else (request.conversation_id,),
        background=request.background,
        notes=tools.notes,
        shown=() if decisions else list_last_questions(items),
        results=tuple(conversation.results),
    )
    return ResponseAsked(
        body=body,
        text=get_whole_text(body) if _is_typed(request) else "",
        streams=request.streams,
        decisions=decisions,
        beside=find_user_messages(own, is_whole=_is_self_contained(request)) if decisions else None,
        wishes=wishes,
        request=request,
        items=own,
        client_tools=tools.client,
        left_out=tuple(dict.fromkeys(tools.left_out.values())),
        listed=frozenset(item["server_label"] for item in items if _lists_tools(item)),
    )


def compact_request(asked: ResponseAsked, summary: str) -> ResponseAsked:
    """Return a request whose messages are those of users and systems, a summary, and what is to be answered.

    That is the last message of the user, or the last call of the model with its output.
    """
    messages: list[Json] = asked.body["messages"]
    tail = _find_tail(messages)
    kept = [message for message in messages[:tail] if not _is_replaced(message)]
    told = {"role": "system", "content": _SUMMARY + summary}
    last, outputs = messages[tail], messages[tail + 1 :]
    answer_ids: tuple[str, ...] = ()
    if last["role"] == "assistant":
        answer_ids = asked.wishes.answer_ids[-1:]
        calls = (last.get("tool_calls") or ())[-1:]
        last = {**last, "tool_calls": list(calls)} if calls else last
        outputs = [one for one in outputs if one.get("tool_call_id") == calls[0]["id"]] if calls else outputs
    wishes = replace(asked.wishes, tainted=True, answer_ids=answer_ids, thoughts=())
    return replace(asked, body={**asked.body, "messages": [*kept, told, last, *outputs]}, wishes=wishes)


def can_compact(asked: ResponseAsked) -> bool:
    """Return whether a summary can take the place of an answer, or of a call, before what is to be answered."""
    messages: list[Json] = asked.body["messages"]
    tail = _find_tail(messages)
    calls = sum(len(message.get("tool_calls") or ()) for message in messages)
    return calls > 1 or any(message["role"] == "assistant" for message in messages[:tail])


def _find_tail(messages: Sequence[Json]) -> int:
    """Return the index from which on a model answers: the last message of the user, or of the model with its calls."""
    return max((i for i, message in enumerate(messages) if message["role"] in ("user", "assistant")), default=0)


def _is_replaced(message: Json) -> bool:
    """Return whether a new summary has the content of a message: of the model, of a tool, or an earlier summary."""
    content = message["content"]
    return message["role"] in ("assistant", "tool") or (isinstance(content, str) and content.startswith(_SUMMARY))


def _lists_tools(item: Json) -> bool:
    """Return whether an item shows the tools of a label, and not that they could not be listed."""
    return item["type"] == "mcp_list_tools" and not item.get("error")


def _is_typed(request: ResponseRequest) -> bool:
    """Return whether the request itself ends with a message of its user.

    Others may have added to the conversation: a text that stands there decides nothing.
    """
    last = request.input[-1] if request.input else {}
    return last.get("type") == "message" and last["role"] == "user"


def _build_tool_fields(request: ResponseRequest) -> Json:
    """Return the fields about the client's own tools, as models get them."""
    tools, fields = request.tools, request.fields
    if not tools.functions:
        return {}
    found: Json = {"tools": list(tools.functions)}
    if fields.get("parallel_tool_calls") is not None:
        found["parallel_tool_calls"] = fields["parallel_tool_calls"]
    if fields.get("tool_choice") is not None and tools.choice is not None:
        found["tool_choice"] = tools.choice
    return found


def _is_self_contained(request: ResponseRequest) -> bool:
    return request.previous_response_id is None and request.conversation_id is None


def _resolve_references(request: ResponseRequest, referenced: Mapping[str, Json]) -> tuple[Json, ...]:
    """Return the items of a request, with the items that it refers to in the place of its references.

    A call whose client left its output out has the stored one.
    """
    if not request.references and not request.without_output:
        return request.input
    items = list(request.input)
    for i, item in enumerate(items):
        if item["type"] == "item_reference":
            if (found := referenced.get(item["id"])) is None:
                text = "There is no item with this id: send the item itself."
                raise GatewayError("item_not_found", text, param=f"input[{i}].id")
            items[i] = found
        elif is_without_output(item) and (kept := referenced.get(item.get("id") or "")) is not None:
            items[i] = {**item, "output": kept.get("output"), "error": kept.get("error")}
    return tuple(items)


def _are_stored(items: Sequence[Json], referenced: Mapping[str, Json]) -> bool:
    return all(_is_stored(item, referenced) for item in items)


def _is_stored(item: Json, referenced: Mapping[str, Json]) -> bool:
    """Return whether an item of a request is not a result of a gateway's tool, or equals the stored one.

    Otherwise the client alone claims whose tool wrote a result.
    """
    if item["type"] != "mcp_call" or _find_result(item) is None:
        return True
    stored = referenced.get(item.get("id") or "", {})
    return all(item.get(name) == stored.get(name) for name in _OF_CALL)


class _Places:
    """The places of items, for errors: the request's own are in `input`, others behind one of its fields."""

    def __init__(self, request: ResponseRequest, n_earlier: int) -> None:
        self._before = "conversation" if request.previous_response_id is None else "previous_response_id"
        self._n_earlier = n_earlier

    def format_place(self, index: int, field: str = "") -> str:
        """Return the place of an item of the whole conversation."""
        return self._before if index < self._n_earlier else self.format_own_place(index - self._n_earlier, field)

    def format_own_place(self, index: int, field: str = "") -> str:
        """Return the place of an item of the request itself."""
        return f"input[{index}].{field}" if field else f"input[{index}]"


@dataclass(slots=True)
class _OpenMessage:
    """The message of the assistant that items are added to, with its calls and their outputs."""

    answer_id: str = ""
    thoughts: list[str] = field(default_factory=list)
    fields: Json = field(default_factory=dict)  # only their provider reads these, and those of the calls, by their ids
    of_calls: dict[str, Json] = field(default_factory=dict)
    text: str = ""
    calls: list[Json] = field(default_factory=list)
    outputs: list[Json] = field(default_factory=list)  # tool messages behind the calls, and then their files
    files: list[Json] = field(default_factory=list)


class _Conversation:
    """The messages of a conversation, as its items are added."""

    def __init__(self, pairs: Pairs, unseal: Callable[[str], str], places: _Places) -> None:
        self.messages: list[Json] = []
        self.results: dict[tuple[str, str], None] = {}  # label and name of each tool of the gateway that was called
        self.tainted = False
        self.all_thoughts: list[str] = []  # each by itself
        self._answer_ids: list[str] = []  # of the messages of the assistant
        self._pairs = pairs
        self._unseal = unseal
        self._places = places
        self._open = _OpenMessage()

    @property
    def answer_ids(self) -> tuple[str, ...]:
        """Return the ids of the requests that the messages of the assistant are the answers to, "" for unknown ones."""
        return tuple(self._answer_ids) if any(self._answer_ids) else ()

    def add_all(self, items: Sequence[Json], *, first: int) -> None:
        """Add items; `first` is the index of the first one."""
        cut = max((i for i, item in enumerate(items) if item["type"] == COMPACTION), default=0)
        behind = set(map(id, items[cut:])) if cut else ()
        for index, item in enumerate(items, first):
            if index - first >= cut or self._counts_before_summary(index, item, behind):
                self._add_item(index, item)
        self._close_answer()

    def _counts_before_summary(self, index: int, item: Json, behind: Collection[int]) -> bool:
        """Return whether an item counts although a later summary has its content.

        Messages of users, systems and developers do, and a call whose output is among the items `behind` the summary.
        """
        if item["type"] == "message":
            return bool(item["role"] != "assistant")
        return id(self._pairs.outputs.get(index)) in behind

    def _add_item(self, index: int, item: Json) -> None:
        """Add an item of any kind to the messages; an output goes with its call."""
        kind = item["type"]
        if kind == "message":
            self._add_message(item)
        elif kind in OUTPUT_OF:
            if (output := self._pairs.outputs.get(index)) is not None:
                self._add_call(build_chat_call(item), _get_output(output))
                self._open.answer_id = self._open.answer_id or find_request_id(item)
                self.tainted = True  # what the client's own tool brought may be a stranger's
        elif kind in OUTPUTS:
            if index in self._pairs.alone:
                self._add_alone(index, item)
        elif kind == "reasoning":
            self._add_thoughts(item)
        elif kind == "mcp_call":
            self._add_own_call(item)
        elif kind == COMPACTION:
            self._add_summary(index, item)

    def _add_message(self, item: Json) -> None:
        """Add a message; one of the assistant stays open for its calls."""
        role = item["role"]
        if role != "assistant":
            self._close_answer()
            self.messages.append({"role": _ROLES[role], "content": convert_to_chat_content(item["content"])})
            return
        if self._open.text or self._open.calls:
            self._close_answer()
        content = convert_to_chat_content(item["content"], between="")
        self._open.answer_id = find_request_id(item)
        self._open.text = content if isinstance(content, str) else ""

    def _add_thoughts(self, item: Json) -> None:
        """Add a reasoning item to the open message of the assistant, or begin one."""
        found = unpack_reasoning(item.get("encrypted_content") or "") or ReasoningContent()
        if (self._open.text or self._open.calls) and not found.goes_on:
            self._close_answer()
        thoughts = [get_text(part) for part in item.get("content") or item.get("summary") or ()]
        self._open.thoughts += thoughts or ([found.text] if found.text else [])
        self.all_thoughts += [*thoughts, *found.texts]
        for name, value in found.message.items():
            known = self._open.fields.get(name)
            self._open.fields[name] = [*known, *value] if isinstance(known, list) and isinstance(value, list) else value
        self._open.of_calls |= found.calls

    def _add_call(self, call: Json, output: str | Sequence[Json]) -> None:
        """Add a call and its output to the open message; files of the output follow in a message."""
        text, files = split_text_and_files(output)
        self._open.calls.append(call)
        if files:
            self._open.files += files
            text = f"{text}\n{_FILES}" if text else _FILES
        self._open.outputs.append({"role": "tool", "tool_call_id": call["id"], "content": text})

    def _add_alone(self, index: int, item: Json) -> None:
        """Add an output that names its tool, and no call: models know outputs of calls only."""
        self._close_answer()
        call_id, name = item.get("id") or f"call_{index}", build_model_name(item["name"], item.get("namespace"))
        self._add_call(_build_call(call_id, name, NO_ARGUMENTS), item["output"])
        self.tainted = True  # as above
        self._close_answer()

    def _add_own_call(self, item: Json) -> None:
        """Add a call of a gateway's tool that has ended, or was cut."""
        output = _CUT if item.get("status") == "incomplete" else _find_result(item)
        if output is not None:
            self.results.setdefault((item["server_label"], item["name"]))
            call_id, name = (
                item.get("id") or f"call_{len(self.messages)}",
                build_tool_name(item["server_label"], item["name"]),
            )
            self._add_call(_build_call(call_id, name, get_arguments(item)), output)
            self._open.answer_id = self._open.answer_id or find_request_id(item)

    def _add_summary(self, index: int, item: Json) -> None:
        self._close_answer()
        summary = unseal_summary(item, self._unseal, place=self._places.format_place(index, "encrypted_content"))
        self.tainted = True
        self.messages.append({"role": "system", "content": _SUMMARY + summary})

    def _close_answer(self) -> None:
        """End the message of the assistant that items are added to."""
        open_ = self._open
        if open_.text or open_.calls:
            message: Json = {"role": "assistant", "content": open_.text or None}
            if open_.thoughts:
                message["reasoning_content"] = "\n".join(open_.thoughts)
            if open_.calls:
                message["tool_calls"] = [{**call, **open_.of_calls.get(call["id"], {})} for call in open_.calls]
            message |= open_.fields
            self.messages += [message, *open_.outputs]
            self._answer_ids.append(open_.answer_id)
            if open_.files:
                self.messages.append({"role": "user", "content": open_.files})
        self._open = _OpenMessage()


def unseal_summary(item: Json, unseal: Callable[[str], str], *, place: str) -> str:
    """Return the summary in a compaction item. Raises GatewayError for one that this gateway did not make."""
    try:
        return unseal(item["encrypted_content"])
    except ValueError:
        text = f"'{place}' was not made by this gateway, or is damaged: send the conversation itself."
        raise GatewayError("invalid_field", text, param=place) from None


def _build_call(call_id: str, name: str, arguments: str) -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _get_output(item: Json) -> str | list[Json]:
    """Return the content of an output item for the model: a text or parts."""
    output: str | list[Json] | None = item.get("output")
    if item["type"] == "shell_call_output":
        return orjson.dumps(output).decode()
    return item["status"] if output is None else output


def _find_result(item: Json) -> str | None:
    """Return the output of a call of the gateway's, or its error; None: it has not ended."""
    output, error = item.get("output"), item.get("error")
    if isinstance(output, str):
        return output
    if error is None:
        return _NOT_SHOWN if is_without_output(item) else None
    if isinstance(error, str):
        return error
    said = get_content_text(error.get("content")) or error.get("message")
    return said if isinstance(said, str) else orjson.dumps(error).decode()
