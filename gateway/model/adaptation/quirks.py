"""The quirks of model servers: parts of a request that they refuse, and the request without them. The one place for it.

A refusal that names such a thing is answered with the same request without it. What helped is remembered by endpoint
and model for the requests of the same key, and is done from then on: a server may repeat words of the request in its
refusal, and one client's words must not change what is sent for others. An operator who knows names it under
`upstreams[].quirks`. Nothing is concluded from the name of a model or of a server.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeAlias

from gateway.contracts.caller import Caller
from gateway.contracts.quirks import QUIRKS, QuirkName
from gateway.contracts.storage.store import Json
from gateway.dialects.merged_messages import SYSTEM_ROLES, join, join_neighbours, merge_leading_system
from gateway.model.adaptation.earlier_calls import (
    add_reasoning,
    add_signatures,
    declare_missing_tool,
    keep_named_tool,
    shorten_call_ids,
)
from gateway.model.adaptation.tool_names import get_functions, use_plain_names

#: The quirks of one model at one endpoint.
Quirks: TypeAlias = frozenset[QuirkName]
NONE: Final[Quirks] = frozenset()
#: So many models are remembered, of all keys; clients can name any.
MODELS: Final = 4096

_FIELD: Final = frozenset((HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.NOT_IMPLEMENTED))
#: Servers that run a template answer what it refuses with 500, too.
_TEMPLATE: Final = _FIELD | {HTTPStatus.INTERNAL_SERVER_ERROR}
_OLD_LIMIT, _LIMIT = "max_tokens", "max_completion_tokens"
_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_details")
_STREAM = rb"(?<![a-z])stream"
#: A refusal that the server does not know a field.
_UNKNOWN = (
    rb"(?:extra|unknown|unrecogni[sz]ed|unexpected|unsupported|not (?:permitted|allowed|supported)|cannot find|no such)"
)
#: A refusal because thoughts are missing, which does not mean to send none.
_LACKS_REASONING = (
    rb"missing[^.\n]{0,20}reasoning_content|reasoning_content[^.\n]{0,60}(?:missing|required|must be (?:passed|sent))"
)
_CANNOT = (
    rb"(?:not|n't|no longer|cannot) (?:\w+ ){0,2}(?:support|implement|allow|permit|available|enabled|possible|accept)"
    rb"|unsupported|unknown|unrecogni[sz]ed|unexpected|unavailable|disabled|must be false|no such|extra (?:input|field)"
    rb"|(?:invalid|bad) (?:value|parameter|field|argument|option)"
)
#: A refusal of streams: it names the field, or has the refusal in the same sentence.
_NO_STREAM = (
    rb'"param"\s*:\s*"stream(?:_options)?"'
    rb"|(?:cannot|can not|can't) (?:be )?%(stream)b"
    rb"|%(stream)b[^.\n]{0,80}?(?:%(cannot)b)"
    rb"|(?:%(cannot)b)[^.\n]{0,80}?%(stream)b" % {b"stream": _STREAM, b"cannot": _CANNOT}
)


@dataclass(frozen=True, slots=True)
class _Quirk:
    """One quirk: whether a request could be refused for it, the refusal, and the request without it.

    `refusal` is searched for in the error answer, whose status is one of `statuses`.
    """

    name: QuirkName
    concerns: Callable[[Json], bool]
    refusal: re.Pattern[bytes]
    change: Callable[[Json], Json]
    statuses: Collection[int] = _FIELD


@dataclass(frozen=True, slots=True)
class QuirkKey:
    """A model at one endpoint of an upstream, and the tenant and the name of the key that requests it."""

    upstream: str
    endpoint: str
    model: str
    whose: tuple[str, str]


class LearntQuirks:
    """The quirks that were learnt of models at endpoints, by this worker since the last reload."""

    def __init__(self) -> None:
        self._learnt: dict[QuirkKey, Quirks] = {}

    def get_quirks(self, asked: QuirkKey, *, configured: Quirks = NONE) -> Quirks:
        """Return the quirks of a model at an endpoint, for requests of a key."""
        learnt = self._learnt.get(asked)
        return configured if learnt is None else configured | learnt

    def remember_quirks(self, asked: QuirkKey, quirks: Quirks) -> None:
        """Remember the quirks with which a request was taken that was refused before."""
        self._learnt.pop(asked, None)
        self._learnt[asked] = quirks
        if len(self._learnt) > MODELS:
            del self._learnt[next(iter(self._learnt))]

    def get_endpoint_quirks(self, upstream: str, endpoint: str) -> Mapping[str, Sequence[QuirkName]]:
        """Return what was learnt of an endpoint for any key, by model."""
        found: dict[str, Quirks] = {}
        for asked, quirks in self._learnt.items():
            if (asked.upstream, asked.endpoint) == (upstream, endpoint):
                found[asked.model] = found.get(asked.model, NONE) | quirks
        return {model: sort_quirks(quirks) for model, quirks in found.items()}

    def list_model_quirks(self, upstream: str, model: str, *, whose: tuple[str, str]) -> Quirks:
        """Return what was learnt of a model at any endpoint of an upstream, for requests of a key."""
        wanted = (upstream, model, whose)
        learnt = self._learnt.items()
        return NONE.union(*(found for one, found in learnt if (one.upstream, one.model, one.whose) == wanted))


def get_key_identity(caller: Caller) -> tuple[str, str]:
    """Return the tenant and the name of the key of a caller."""
    return caller.tenant, caller.name


def sort_quirks(quirks: Quirks) -> list[QuirkName]:
    """Return quirks in the order in which documentation lists them."""
    return [name for name in QUIRKS if name in quirks]


def find_quirk(quirks: Quirks, body: Json, *, status: int, refusal: bytes) -> Quirks | None:
    """Return the quirks to try after this error answer to a request, or None if it is about something else."""
    for quirk in _QUIRKS:
        if quirk.name in quirks or status not in quirk.statuses:
            continue
        if quirk.refusal.search(refusal) and quirk.concerns(body):
            return quirks | {quirk.name}
    return None


def adapt_request(body: Json, quirks: Quirks) -> Json:
    """Return the body of a request for a model: a stream with usage, without what its quirks name."""
    messages = merge_leading_system(body["messages"]) if body.get("messages") else None
    if messages is not None and messages is not body["messages"]:
        body = {**body, "messages": messages}
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    if quirks:
        for quirk in _QUIRKS:
            if quirk.name in quirks:
                body = quirk.change(body)
    return body


def _list_roles(body: Json) -> list[object]:
    return [message.get("role") for message in body.get("messages") or ()]


def _has_field(name: str) -> Callable[[Json], bool]:
    return lambda body: body.get(name) is not None


def _drop_fields(*names: str) -> Callable[[Json], Json]:
    return lambda body: {key: value for key, value in body.items() if key not in names}


def _build_messages_change(change: Callable[[list[Json]], list[Json]]) -> Callable[[Json], Json]:
    return lambda body: {**body, "messages": change(body["messages"])} if body.get("messages") else body


def _disable_streaming(body: Json) -> Json:
    return {**{key: value for key, value in body.items() if key != "stream_options"}, "stream": False}


def _breaks_turns(body: Json) -> bool:
    messages = body.get("messages") or []
    return len(join_neighbours(messages)) < len(messages) or _has_later_system(body) or "developer" in _list_roles(body)


def _has_later_system(body: Json) -> bool:
    return any(role in SYSTEM_ROLES for role in _list_roles(body)[1:])


def _merge_system_messages(messages: list[Json]) -> list[Json]:
    """Return messages with all system messages at the beginning, as one."""
    system = [message for message in messages if message.get("role") in SYSTEM_ROLES]
    return merge_leading_system(
        [*system, *(message for message in messages if message.get("role") not in SYSTEM_ROLES)]
    )


def _merge_into_turns(messages: list[Json]) -> list[Json]:
    """Return messages of the user and of the model in turn, behind one system message."""
    return join_neighbours(_convert_developer_to_system(_merge_system_messages(messages)))


def _convert_system_to_user(messages: list[Json]) -> list[Json]:
    """Return messages whose system messages are the user's, the first ones a part of the first that is."""
    said = [{**one, "role": "user"} if one.get("role") in SYSTEM_ROLES else one for one in messages]
    if len(said) > 1 and messages[0].get("role") in SYSTEM_ROLES and said[1].get("role") == "user":
        return [join(said[0], said[1]), *said[2:]]
    return said


def _convert_developer_to_system(messages: list[Json]) -> list[Json]:
    return [{**one, "role": "system"} if one.get("role") == "developer" else one for one in messages]


def _drop_reasoning(messages: list[Json]) -> list[Json]:
    return [{name: value for name, value in one.items() if name not in _REASONING} for one in messages]


def _has_reasoning(body: Json) -> bool:
    return any(one.get(name) is not None for one in body.get("messages") or () for name in _REASONING)


def _rename_field(old: str, new: str) -> Callable[[Json], Json]:
    """Return a function that renames a field of a body, replacing one with the new name."""

    def rename(body: Json) -> Json:
        if old not in body:
            return body
        return {new if key == old else key: value for key, value in body.items() if key != new}

    return rename


def _build_change_check(change: Callable[[Json], Json]) -> Callable[[Json], bool]:
    return lambda body: change(body) is not body


def _drop_strict(body: Json) -> Json:
    """Return a body whose functions have no `strict`."""
    if not body.get("tools"):
        return body
    tools = []
    for tool in body["tools"]:
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict):
            tool = {**tool, "function": {name: value for name, value in function.items() if name != "strict"}}
        tools.append(tool)
    return {**body, "tools": tools}


def _compile_pattern(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.IGNORECASE)


#: In the order in which they are looked for, and applied.
_QUIRKS: Final = (
    _Quirk(
        "max_completion_tokens",
        _has_field(_OLD_LIMIT),
        _compile_pattern(rb"max_tokens.*max_completion_tokens|max_completion_tokens.*max_tokens"),
        _rename_field(_OLD_LIMIT, _LIMIT),
    ),
    _Quirk(
        "max_tokens",
        _has_field(_LIMIT),
        _compile_pattern(
            rb"%(unknown)b[^\n]{0,80}max_completion_tokens|max_completion_tokens[^\n]{0,80}%(unknown)b"
            % {b"unknown": _UNKNOWN}
        ),
        _rename_field(_LIMIT, _OLD_LIMIT),
    ),
    _Quirk(
        "no_usage_in_stream",
        lambda _: True,
        _compile_pattern(rb"stream_options|include_usage"),
        _drop_fields("stream_options"),
    ),
    _Quirk(
        "no_stream",
        lambda _: True,
        _compile_pattern(_NO_STREAM),
        _disable_streaming,
    ),
    _Quirk(
        "no_developer_role",
        lambda body: "developer" in _list_roles(body),
        _compile_pattern(rb"developer"),
        _build_messages_change(_convert_developer_to_system),
        _TEMPLATE,
    ),
    _Quirk(
        "no_system_role",
        lambda body: not SYSTEM_ROLES.isdisjoint(_list_roles(body)),
        _compile_pattern(
            rb"(?:system|developer) (?:role|message|prompt|instruction)s?[^.\n]{0,20} not (?:supported|enabled)"
            rb"|(?:not|n't) support[^.\n]{0,30}(?:system|developer)[^.\n]{0,12} (?:role|message|prompt|instruction)"
            rb"|role'? does not support '(?:system|developer)'"
        ),
        _build_messages_change(_convert_system_to_user),
        _TEMPLATE,
    ),
    _Quirk(
        "one_system_message",
        _has_later_system,
        _compile_pattern(
            rb"system (?:message|prompt|role)s?[^.\n]{0,60}(?:beginning|first|start|only one|once)"
            rb"|(?:multiple|several|more than one|only one|two|single) (?:'|\")?system"
            rb"|(?:unexpected|invalid)[^.\n]{0,40}['\"`]?system['\"`]?"
        ),
        _build_messages_change(_merge_system_messages),
        _TEMPLATE,
    ),
    _Quirk(
        "alternating_roles",
        _breaks_turns,
        _compile_pattern(rb"alternat|consecutive|roles? in a row|(?:unexpected|expected)[^.\n]{0,40}role"),
        _build_messages_change(_merge_into_turns),
        _TEMPLATE,
    ),
    _Quirk(
        "reasoning_back",
        _build_change_check(add_reasoning),
        _compile_pattern(_LACKS_REASONING),
        add_reasoning,
    ),
    _Quirk(
        "no_reasoning_effort",
        _has_field("reasoning_effort"),
        _compile_pattern(
            rb"(?:extra|unknown|unrecogni[sz]ed|unexpected|unsupported) (?:\w+ ){0,2}(?:parameter|argument|field)s?"
            rb"[^\n]{0,40}reasoning_effort|reasoning_effort[^\n]{0,60}(?:not (?:permitted|allowed|supported with))"
        ),
        _drop_fields("reasoning_effort"),
    ),
    _Quirk(
        "no_reasoning",
        _has_reasoning,
        _compile_pattern(rb"(?s)\A(?!.*(?:%b)).*reasoning" % _LACKS_REASONING),
        _build_messages_change(_drop_reasoning),
    ),
    _Quirk(
        "thought_signatures",
        _build_change_check(add_signatures),
        _compile_pattern(rb"thought_?signature"),
        add_signatures,
    ),
    _Quirk(
        "short_call_ids",
        _build_change_check(shorten_call_ids),
        _compile_pattern(rb"tool.?call.?id[^\n]{0,200}length of 9"),
        shorten_call_ids,
        _TEMPLATE,
    ),
    _Quirk(
        "tools_for_calls",
        _build_change_check(declare_missing_tool),
        _compile_pattern(rb"without `?tools=?`?|toolConfig field must be defined|expects the `?tools=?`? param"),
        declare_missing_tool,
    ),
    _Quirk(
        "no_named_tool_choice",
        _build_change_check(keep_named_tool),
        _compile_pattern(rb"tool_choice[^\n]{0,80}(?:type|string|object|must be|expected|supported|one of)"),
        keep_named_tool,
    ),
    _Quirk(
        "no_parallel_tool_calls",
        _has_field("parallel_tool_calls"),
        _compile_pattern(rb"parallel_tool_calls"),
        _drop_fields("parallel_tool_calls"),
    ),
    _Quirk(
        "no_strict_tools",
        lambda body: any("strict" in function for function in get_functions(body)),
        _compile_pattern(rb"\bstrict\b"),
        _drop_strict,
    ),
    _Quirk(
        "plain_tool_names",
        _build_change_check(use_plain_names),
        _compile_pattern(rb"(?:function|tool)[^\n]{0,80}name|name[^\n]{0,80}(?:function|tool)"),
        use_plain_names,
    ),
    # A server that implements no streams refuses them in any words.
    _Quirk("no_stream", lambda _: True, _compile_pattern(_STREAM), _disable_streaming, (HTTPStatus.NOT_IMPLEMENTED,)),
)
