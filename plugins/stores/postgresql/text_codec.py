"""Text and JSON as PostgreSQL stores them, and back.

Its text has no U+0000. So U+0000 is written as U+0001 U+0001, and U+0001 as U+0001 U+0002. That is reversible, and
keeps the order of texts. All other text is stored as it is.
"""

from collections.abc import Sequence
from typing import Any, Final

import orjson

_MARK: Final = "\x01"
#: How the two characters stand in JSON that orjson wrote.
_IN_JSON: Final = (b"\\u0000", b"\\u0001")


def escape_text(text: str) -> str:
    if "\0" not in text and _MARK not in text:
        return text
    return text.replace(_MARK, "\x01\x02").replace("\0", "\x01\x01")


def restore_text(text: str) -> str:
    if _MARK not in text:
        return text
    # No mark that was written is followed by itself twice: each is read with the character behind it.
    pieces = text.split(_MARK)
    restored, place = [pieces[0]], 1
    while place < len(pieces):
        if pieces[place].startswith("\x02"):
            restored.append(_MARK + pieces[place][1:])
            place += 1
        else:
            restored.append("\0" + (pieces[place + 1] if place + 1 < len(pieces) else ""))
            place += 2
    return "".join(restored)


def encode_value(value: Any) -> Any:
    """Return a parameter of a statement as the server takes it: texts escaped, also those of a list."""
    if isinstance(value, str):
        return escape_text(value)
    if isinstance(value, list):
        return [encode_value(one) for one in value]
    return value


def encode_json(value: Any) -> str:
    """Return JSON with escaped texts. Bytes become text as `bytea` reads it. Raises TypeError for lone surrogates."""
    written = orjson.dumps(value, default=_encode_bytes)
    if any(mark in written for mark in _IN_JSON):
        written = orjson.dumps(_escape_all(orjson.loads(written)))
    return written.decode()


def _encode_bytes(value: object) -> str:
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    raise TypeError(f"no JSON: {type(value).__name__}")


def _escape_all(value: Any) -> Any:
    if isinstance(value, str):
        return escape_text(value)
    if isinstance(value, dict):
        return {escape_text(key): _escape_all(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_escape_all(one) for one in value]
    return value


def restore_values(row: Sequence[Any]) -> list[Any]:
    """Return the values of a row with their texts as they were written."""
    return [restore_text(value) if type(value) is str and _MARK in value else value for value in row]
