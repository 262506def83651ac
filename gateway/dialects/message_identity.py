"""The meaning of a chat message, however its client writes it when it sends it again.

Clients write arguments anew (order, white space, escapes, spelling of numbers), split and trim texts, add fields and
drop them, and take out where a model thought aloud. Two messages that mean the same have the same `Meaning`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson

_BLANKS: Final = b" \t\n\r\v\f"
_NO_BREAK_SPACE: Final = "\u00a0".encode()
_ID_LIMIT_CHARS: Final = 128
_RANDOM = re.compile(r"[0-9A-Za-z]{16}")
_TWO_DIGITS = re.compile(r"[0-9][^0-9]*[0-9]")
_ASKED_FOR = re.compile(r"(?<![0-9A-Za-z_])ap_[a-z2-7]{26}(?![0-9A-Za-z])")
_ID_IN_TEXT = re.compile(r"(?:call|chatcmpl-tool|fc|toolu)[_-][0-9A-Za-z]{16,64}")
#: Parts of an answer that clients take out of it or put into it: thoughts, whose beginning a model's template may have
#: swallowed, and calls as Open WebUI shows them.
_THOUGHTS: Final = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<reason>", "</reason>"),
    ("<thought>", "</thought>"),
    ("<Thought>", "</Thought>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("◁think▷", "◁/think▷"),
)
_SHOWN: Final = (('<details type="reasoning"', "</details>"), ('<details type="tool_calls"', "</details>"))
#: Types of parts that are texts.
TEXT_PARTS: Final = frozenset(("text", "output_text"))
_ROLES: Final[Mapping[object, bytes]] = {"user": b"u", "assistant": b"a", "tool": b"t", "function": b"t"}


@dataclass(slots=True)
class MessageMeaning:
    """The meaning of a message, which is not changed after it is made.

    `role` is one letter; `text` is without white space; `calls` are names and arguments, b"" for none. `ids` are the
    ids of the calls, also of calls in text, as far as only this gateway can have made them. `asks` are the ids of the
    approvals that the text requests.
    """

    role: bytes
    text: bytes
    calls: bytes = b""
    ids: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()


def parse_meaning(message: Mapping[str, object]) -> MessageMeaning:
    """Return the content that identifies a chat message, also of a malformed one."""
    role = _ROLES.get(message.get("role"), b"?")
    text = get_content_text(message.get("content"))
    if role != b"a":
        return MessageMeaning(role, remove_white_space(text))
    ids: list[str] = []
    calls = [*map(partial(_describe_call, ids=ids), get_calls(message))]
    own = tuple(dict.fromkeys([*filter(is_random, ids), *extract_call_ids(text)]))
    told = remove_white_space(remove_asides(text))
    return MessageMeaning(role, told, orjson.dumps(calls) if calls else b"", own, extract_approval_ids(text))


def extract_call_ids(text: str) -> list[str]:
    """Return the random ids of calls that a text contains."""
    if "_" not in text and "-" not in text:
        return []
    return [call_id for call_id in _ID_IN_TEXT.findall(text) if is_random(call_id)]


def extract_approval_ids(text: str) -> tuple[str, ...]:
    """Return the ids of approvals in a text, each once."""
    return tuple(dict.fromkeys(_ASKED_FOR.findall(text))) if "ap_" in text else ()


def is_random(call_id: str) -> bool:
    """Return whether an id looks random, so that no second call has it: `call_1` and `functions.look:0` do not."""
    plain = call_id.replace("-", "")
    return (
        len(call_id) <= _ID_LIMIT_CHARS and _RANDOM.search(plain) is not None and _TWO_DIGITS.search(plain) is not None
    )


def get_content_text(content: object) -> str:
    """Return the text of a message's content, which is a text or parts."""
    if isinstance(content, str):
        return content
    texts = [part if isinstance(part, str) else part.get("text") for part in _filter_parts(content)]
    return "".join(text for text in texts if isinstance(text, str))


def split_spoken_parts(content: Sequence[object]) -> tuple[str, str] | None:
    """Return text and reasoning of a list of parts; None if it has parts of another type."""
    texts, thoughts = [], []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "thinking" and isinstance(part, dict):
            thoughts.append(get_content_text(part.get("thinking")))
        elif kind in TEXT_PARTS:
            texts.append(get_content_text([part]))
        else:
            return None
    return "".join(texts), "".join(thoughts)


def _filter_parts(content: object) -> list[str | Mapping[str, object]]:
    return [part for part in content if isinstance(part, str | dict)] if isinstance(content, list | tuple) else []


def remove_white_space(text: str) -> bytes:
    """Return a text without white space, which programs break, trim and indent as they like."""
    raw = text.encode("utf-8", "surrogatepass")
    return raw.translate(None, _BLANKS).replace(_NO_BREAK_SPACE, b"")


def remove_asides(text: str) -> str:
    """Return a text without the parts that clients take out of answers or put into them."""
    if "<" not in text and "◁" not in text:  # each opening and each closing has one
        return text
    for opening, closing in _THOUGHTS:
        if closing in text:
            head = text.find(closing)
            if text.find(opening, 0, head) < 0:
                text = text[head + len(closing) :]
            text = _remove_sections(text, opening, closing)
    for opening, closing in _SHOWN:
        text = _remove_sections(text, opening, closing)
    return text


def extract_asides(text: str) -> list[str]:
    """Return the parts that `remove_asides` takes out, without their tags."""
    found = []
    for opening, closing in (*_THOUGHTS, *_SHOWN):
        at = 0
        while (end := text.find(closing, at)) >= 0:
            begin = text.find(opening, at, end)
            found.append(text[at:end] if begin < 0 else text[begin + len(opening) : end])
            at = end + len(closing)
    return found


def _remove_sections(text: str, opening: str, closing: str) -> str:
    """Return a text without the sections between these tags; an unclosed tag stays."""
    kept, at = [], 0
    while (begin := text.find(opening, at)) >= 0 and (end := text.find(closing, begin)) >= 0:
        kept.append(text[at:begin])
        at = end + len(closing)
    return "".join([*kept, text[at:]]) if kept else text


def _describe_call(call: Mapping[str, object], ids: list[str]) -> list[object]:
    """Return the name and the arguments of a call, and add its id to `ids`."""
    if isinstance(call_id := call.get("id"), str):
        ids.append(call_id)
    function = call.get("function") or call.get("custom")
    if not isinstance(function, dict):
        return []
    name, arguments = function.get("name"), function.get("arguments", function.get("input"))
    return [name if isinstance(name, str) else None, normalize_arguments(arguments)]


def get_calls(message: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the calls of a message, also a `function_call`, as calls were before they had ids."""
    calls, call = message.get("tool_calls"), message.get("function_call")
    found = _filter_objects(calls) if calls else []
    return [*found, {"function": call}] if isinstance(call, dict) else found


def normalize_arguments(arguments: object) -> str:
    """Return canonical JSON of the arguments; for invalid JSON, its text without white space."""
    try:
        return orjson.dumps(parse_arguments(arguments) or {}, option=orjson.OPT_SORT_KEYS).decode()
    except (ValueError, TypeError, RecursionError):  # orjson's errors are among them
        return remove_white_space(str(arguments)).decode("utf-8", "surrogatepass")


def parse_arguments(arguments: object) -> object:
    """Return the JSON value of arguments, however they are written. Raises ValueError, TypeError, RecursionError."""
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    value = _parse_json_value(text)
    return _parse_json_value(value) if isinstance(value, str) else value  # arguments that a model encoded as JSON twice


def _parse_json_value(text: str) -> object:
    """Return JSON with numbers as JavaScript has them: 1, 1.0 and 1e0 are equal; blanks are {}."""
    return json.loads(text, parse_int=_parse_number, parse_float=_parse_number) if text.strip() else {}


def _parse_number(spelled: str) -> float:
    return float(spelled) + 0.0  # -0.0 is 0


def _filter_objects(value: object) -> list[Mapping[str, object]]:
    """Return the objects of a list; a client may have sent anything."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list | tuple) else []
