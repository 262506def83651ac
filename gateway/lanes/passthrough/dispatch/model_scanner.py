"""The `model` of a JSON object, found while its bytes arrive: the first one at the top level.

It reads strings and brackets only, keeps its place between two pieces, and never looks at a byte twice. What is not a
JSON object, and what is too long or too finely divided, has no model here.

A short body that is here whole is parsed instead, which takes a thirtieth of the time (`model_of`).
"""

import json
import re
from typing import Final

import orjson

#: So much of a body is looked at: SDKs send `messages` before `model`.
LIMIT_BYTES: Final = 1 << 20
#: So many strings and brackets are looked at: about 20 ms.
LIMIT_TOKENS: Final = 50_000
#: A body of so many bytes is parsed. It has no more than LIMIT_TOKENS: there are at most 1.5 for a byte.
SHORT_BYTES: Final = 1 << 15
#: How each letter of `model` begins when it is written as an escape.
_ESCAPED: Final = rb"\u006"

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+("?)', re.DOTALL)
_NESTED: Final = re.compile(rb'[^"{}\[\]]*+')
_SCALAR: Final = re.compile(rb'[^,}\]\s"]*+')
#: What comes next: the brace of the object, a key, the rest of a key, a colon, a value, the rest of a string, a nested
#: value, the rest of a string in it, the rest of a number or word, a comma.
_BRACE, _KEY, _IN_KEY, _COLON, _VALUE, _IN_TEXT, _IN_NESTED, _IN_NESTED_TEXT, _IN_SCALAR, _COMMA = range(10)


def find_model(body: bytes) -> str | None:
    """Return the model of a body that is here whole: what `ModelField` finds in it."""
    if (
        len(body) <= SHORT_BYTES
        and body.startswith(b"{")
        and body.count(b'"model"') == 1
        and (b"\\" not in body or _ESCAPED not in body)
    ):
        try:
            parsed = orjson.loads(body)
        except orjson.JSONDecodeError:
            pass  # the model may stand before the error
        else:
            # No key is twice the model, so that a parser and a reader from the front see the same one.
            model = parsed.get("model")
            return model if isinstance(model, str) else None
    field = ModelField()
    field.feed(body)
    return field.model


class ModelField:
    """Looks for the model. `done` once `model` is final; None: there is none."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.done = False
        self._data = bytearray()
        self._at = 0
        self._try_next = _BRACE
        self._start = 0  # of the string that is being read
        self._is_model = False  # the value belongs to the key
        self._depth = 0
        self._tokens = 0

    def feed(self, data: bytes) -> None:
        """Scan the next piece of the body."""
        if self.done:
            return
        self._data += data[: LIMIT_BYTES - len(self._data)]
        while not self.done and self._read_token():
            self._tokens += 1
            if self._tokens > LIMIT_TOKENS:
                self.done = True
        if len(self._data) >= LIMIT_BYTES:
            self.done = True
        if self.done:
            self._data.clear()

    def _read_token(self) -> bool:
        """Read one token. Return False if more bytes are needed."""
        if self._try_next in (_IN_KEY, _IN_TEXT, _IN_NESTED_TEXT):
            return self._read_string()
        if self._try_next == _IN_NESTED:
            return self._read_nested()
        if self._try_next == _IN_SCALAR:
            self._skip_pattern(_SCALAR)
            self._try_next = _COMMA
            return self._at < len(self._data) or self._wait_in_state(_IN_SCALAR)
        self._skip_pattern(_SPACE)
        if self._at >= len(self._data):
            return False
        return self._read_punctuation(self._data[self._at])

    def _wait_in_state(self, state: int) -> bool:
        """Stop until more bytes come, and continue in this state. Return False."""
        self._try_next = state
        return False

    def _skip_pattern(self, pattern: re.Pattern[bytes]) -> None:
        """Move behind a match of the pattern."""
        found = pattern.match(self._data, self._at)
        assert found is not None
        self._at = found.end()

    def _read_punctuation(self, byte: int) -> bool:
        """Read a byte between two tokens."""
        if self._try_next == _BRACE and byte == 0x7B:
            self._try_next = _KEY
        elif self._try_next == _KEY and byte == 0x22:
            self._try_next, self._start = _IN_KEY, self._at
        elif self._try_next == _COLON and byte == 0x3A:
            self._try_next = _VALUE
        elif self._try_next == _COMMA and byte == 0x2C:
            self._try_next = _KEY
        elif self._try_next == _VALUE and (byte == 0x22 or not self._is_model):
            return self._begin_value(byte)
        else:  # the end of the object, a model that is no text, or no JSON
            self.done = True
            return False
        self._at += 1
        return True

    def _begin_value(self, byte: int) -> bool:
        """Begin to read a value."""
        if byte == 0x22:
            self._try_next, self._start = _IN_TEXT, self._at
            self._at += 1
        elif byte in b"{[":
            self._try_next, self._depth = _IN_NESTED, 1
            self._at += 1
        else:
            self._try_next = _IN_SCALAR
        return True

    def _read_string(self) -> bool:
        """Read on in a string."""
        found = _STRING.match(self._data, self._at)
        assert found is not None
        self._at = found.end()
        if not found[1]:
            return False
        if self._try_next == _IN_NESTED_TEXT:
            self._try_next = _IN_NESTED
            return True
        if self._try_next == _IN_TEXT and not self._is_model:
            self._try_next = _COMMA
            return True
        try:
            text = json.loads(self._data[self._start : self._at])
        except ValueError:
            self.done = True
            return False
        if self._try_next == _IN_KEY:
            self._is_model, self._try_next = text == "model", _COLON
            return True
        self.model, self.done = text, True
        return False

    def _read_nested(self) -> bool:
        """Read on in a nested value."""
        self._skip_pattern(_NESTED)
        if self._at >= len(self._data):
            return False
        byte = self._data[self._at]
        self._at += 1
        if byte == 0x22:
            self._try_next = _IN_NESTED_TEXT
        elif byte in b"{[":
            self._depth += 1
        else:
            self._depth -= 1
            if not self._depth:
                self._try_next = _COMMA
        return True
