"""The texts of an answer that are long enough to be recognised by themselves, wherever clients put them.

An answer comes back in parts: clients drop some, reorder them, give them other ids, and move thoughts from one field to
another. So each text of a message counts by itself, whatever field it is in, and so do the arguments of each call,
whatever its tool is called and however they are written.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import orjson

from gateway.dialects.message_identity import (
    extract_asides,
    get_calls,
    get_content_text,
    parse_arguments,
    remove_asides,
    remove_white_space,
)

#: A text of this length is recognised by itself.
TELLING_BYTES: Final = 48
_TEXT, _ARGUMENTS = b"t", b"j"
#: Fields that have their own readers, and fields that are not text.
_FIELDS: Final = frozenset(("role", "content", "tool_calls", "function_call", "name", "id", "type", "tool_call_id"))
#: Texts that say nothing.
_NAMES: Final = frozenset(("id", "type", "format", "role", "index"))


def extract_fingerprint_texts(message: Mapping[str, object]) -> list[bytes]:
    """Return the texts of an answer that it is recognised by, each once, without white space."""
    found: list[bytes] = []
    content = message.get("content")
    if text := get_content_text(content):
        bare = remove_asides(text)
        found.append(_TEXT + remove_white_space(bare))
        if bare != text:
            found += [_TEXT + remove_white_space(one) for one in (text, *extract_asides(text))]
    if isinstance(content, list | tuple):
        found += _extract_texts([part for part in content if not (isinstance(part, dict) and "text" in part)])
    for name, value in message.items():
        if value and name not in _FIELDS:
            found += _extract_texts(value)
    found += [_normalize_arguments(call) for call in get_calls(message)]
    return list(dict.fromkeys(text for text in found if len(text) > TELLING_BYTES))


def _extract_texts(value: object) -> list[bytes]:
    """Return each text in a value, and all of them joined: clients may split texts differently."""
    texts = list(_iterate_leaf_texts(value))
    if len(texts) > 1:
        texts.append("".join(texts))
    return [_TEXT + remove_white_space(text) for text in texts]


def _iterate_leaf_texts(value: object) -> Iterator[str]:
    """Yield the texts in a value in their order."""
    left = [value]
    while left:
        match left.pop():
            case str(text):
                yield text
            case dict() as fields:
                left += [inner for name, inner in reversed(fields.items()) if name not in _NAMES]
            case list() | tuple() as entries:
                left += reversed(entries)


def _normalize_arguments(call: Mapping[str, object]) -> bytes:
    """Return the arguments of a call in one spelling; b"" if their values are too short to be recognised.

    Null and {} count as left out: not every kind of item shows them.
    """
    function, custom = call.get("function"), call.get("custom")
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if isinstance(custom, dict):
        arguments = {"input": custom.get("input")}
    if not arguments:
        return b""
    try:
        value = _drop_empty(parse_arguments(arguments))
        written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (ValueError, TypeError, RecursionError):  # no JSON, or not to be written as such
        return _TEXT + remove_white_space(str(arguments))
    return _ARGUMENTS + written if _count_chars(value) >= TELLING_BYTES else b""


def _drop_empty(value: object) -> object:
    if isinstance(value, dict):
        return {name: _drop_empty(inner) for name, inner in value.items() if inner is not None and inner != {}}
    return [_drop_empty(entry) for entry in value] if isinstance(value, list) else value


def _count_chars(value: object) -> int:
    """Return the number of characters in a value, without field names. Raises RecursionError."""
    if isinstance(value, dict):
        return sum(map(_count_chars, value.values()))
    if isinstance(value, list):
        return sum(map(_count_chars, value))
    return len(remove_white_space(value)) if isinstance(value, str) else len(str(value))
