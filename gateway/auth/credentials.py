"""The credentials in the head of a request: where clients put them, and a target without them.

Providers read a key from several headers, parameters of the query and, for browsers, from a subprotocol of a WebSocket.
"""

import binascii
import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

from gateway.contracts.errors import GatewayError
from gateway.http.fields import CREDENTIALS, Field
from gateway.http.request_head import RequestHead

GATEWAY_HEADER: Final = b"x-gateway-key"
#: Headers in which clients send the credential for an upstream; one of them may carry the gateway's key instead.
CREDENTIAL_HEADERS: Final = (b"authorization", b"x-api-key")
#: The headers in which a gateway key is looked for, the first one before the others.
KEY_HEADERS: Final = (GATEWAY_HEADER, *CREDENTIAL_HEADERS)
#: The field in which browsers send a key, as `openai-insecure-api-key.KEY`: they can set no other one.
SUBPROTOCOLS: Final = b"sec-websocket-protocol"
_IN_SUBPROTOCOL: Final = b"openai-insecure-api-key."
#: Parameters of a query that hold a key, by the letters of their names.
_PARAMETERS: Final = frozenset(
    (*(name.replace(b"-", b"") for name in CREDENTIALS), b"key", b"accesstoken", b"subscriptionkey")
)
_JOINTS: Final = b"-_."
_BASIC: Final = b"basic "
#: What divides a text into parts, and these into words.
_BETWEEN_PARTS: Final = b",;&\"'<>"
_IN_PARTS: Final = b":=?/()"
#: Tables that make blanks of these.
_AS_PARTS: Final = bytes.maketrans(_BETWEEN_PARTS, b" " * len(_BETWEEN_PARTS))
_AS_WORDS: Final = bytes.maketrans(_BETWEEN_PARTS + _IN_PARTS, b" " * len(_BETWEEN_PARTS + _IN_PARTS))
#: A key of so many characters is found as a part of a word, and in any field. A shorter one may be there by chance.
_LONG_CHARS: Final = 16
#: Fields of at most so many characters are remembered, and the words in them.
_USUAL_CHARS: Final = 256
#: Fields in which short words are looked up, too.
_LIKELY: Final = CREDENTIALS | {b"cookie", SUBPROTOCOLS}


def read_fields(head: RequestHead) -> dict[bytes, bytes]:
    """Return the values of the credential headers. Raises GatewayError (invalid_header) for one that comes twice."""
    found: dict[bytes, bytes] = {}
    for line in head.fields:
        if line.name in KEY_HEADERS:
            if line.name in found:
                raise GatewayError(
                    "invalid_header", "You sent this credential header twice: send it once.", param=line.name.decode()
                )
            found[line.name] = line.value
    return found


def parse_token(name: bytes, value: bytes | None) -> bytes | None:
    """Return the secret in a credential header's value."""
    if not value:
        return None
    if name != b"authorization":
        return value
    scheme, _, token = value.partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


def find_key_candidates(head: RequestHead) -> list[tuple[bytes, bytes]]:
    """Return the words of a head that may be keys, with their SHA-256: of its fields, its target, and what they encode.

    A word may be there several times.
    """
    words: list[tuple[bytes, bytes]] = []
    for field in head.fields:
        if len(field.value) <= _USUAL_CHARS:
            words += _usual_words(field)
        else:
            words += _find_field_words(field)
    if b"?" in head.target:
        words += _hash_words(_split_likely_words(head.target.partition(b"?")[2]))
    return words


def _find_field_words(field: Field) -> Sequence[tuple[bytes, bytes]]:
    """Return the words of a field that may be keys, with their SHA-256."""
    name, value = field.name, field.value
    if name in _LIKELY or (b"_" in name and name.replace(b"_", b"-") in _LIKELY):
        return _hash_words(_split_likely_words(value))
    return _hash_words(_split_long_words(value)) if len(value) >= _LONG_CHARS else ()


#: Most fields come again with each request of a client.
_usual_words = lru_cache(maxsize=1024)(_find_field_words)


def _hash_words(words: Iterable[bytes]) -> Sequence[tuple[bytes, bytes]]:
    return [(word, hashlib.sha256(word).digest()) for word in words]


def _split_long_words(value: bytes) -> set[bytes]:
    """Return the words of a value that are long enough to rule out a chance match."""
    text = value + b"\n" + unquote_to_bytes(value) if b"%" in value else value
    words = {*text.translate(_AS_PARTS).split(), *text.translate(_AS_WORDS).split()}
    return {word for word in words if len(word) >= _LONG_CHARS}


def _split_likely_words(value: bytes) -> set[bytes]:
    """Return the words of a value that often is a key, short ones, too."""
    words = set[bytes]()
    for reading in _list_readings(value.replace(_IN_SUBPROTOCOL, b" ")):
        parts = reading.translate(_AS_PARTS).split()
        words.update(parts, reading.translate(_AS_WORDS).split())
        if b"=" in reading:
            words.update([part.partition(b"=")[2] for part in parts])
    return words


def find_key_fields(head: RequestHead, keys: Collection[bytes]) -> set[bytes]:
    """Return the names of the fields that hold one of these keys."""
    values = b"\n".join([field.value for field in head.fields])
    found = [field for key in keys for field in head.fields if key in field.value]  # a head has many fields
    if b"%" in values or _BASIC in values.lower():
        found += [field for field in head.fields if b"%" in field.value or field.value[:6].lower() == _BASIC]
    return {field.name for field in found if holds(field.value, keys)}


def holds(value: bytes, keys: Collection[bytes]) -> bool:
    """Return whether a value holds one of these keys, also percent-encoded or as a password (RFC 7617)."""
    for reading in _list_readings(value):
        for key in keys:
            if key in reading and (len(key) >= _LONG_CHARS or _is_word(key, reading)):
                return True
    return False


def clean_target(target: bytes, keys: Collection[bytes], *, has_own: bool) -> bytes:
    """Return a target without the parameters of its query that hold one of these keys of the gateway.

    `has_own`: the upstream gets a key of the gateway's own, so no parameter with another one goes beside it.
    Raises GatewayError (invalid_field) for a path that holds a key of the gateway.
    """
    path, mark, query = target.partition(b"?")
    if holds(path, [key for key in keys if len(key) >= _LONG_CHARS]):
        raise GatewayError(
            "invalid_field",
            "The path of the URL holds a gateway key, and would carry it to the upstream: send the key in a header, "
            "such as X-Gateway-Key.",
            param="path",
        )
    if not mark or not (keys or has_own):
        return target
    parts = query.split(b"&")
    kept = [part for part in parts if not (holds(part, keys) or (has_own and _is_credential_parameter(part)))]
    if len(kept) == len(parts):
        return target
    return path + mark + b"&".join(kept) if kept else path


def clean_subprotocols(value: bytes) -> bytes:
    """Return the subprotocols that a client requests, without the ones that hold a key for the upstream."""
    members = (member.strip(b" \t") for member in value.split(b","))
    return b", ".join(member for member in members if not member.lower().startswith(_IN_SUBPROTOCOL))


def _is_credential_parameter(part: bytes) -> bool:
    """Return whether a part of a query is a credential. A server may also read `;` as the end of a parameter."""
    names = (unquote_to_bytes(each.partition(b"=")[0]) for each in unquote_to_bytes(part).split(b";"))
    return any(name.lower().translate(None, _JOINTS) in _PARAMETERS for name in names)


def _is_word(key: bytes, text: bytes) -> bool:
    return re.search(rb"(?<![0-9A-Za-z_-])" + re.escape(key) + rb"(?![0-9A-Za-z_-])", text) is not None


def _list_readings(value: bytes) -> Sequence[bytes]:
    """Return a value, and the texts that it may encode."""
    if b"%" in value:
        return value, unquote_to_bytes(value)
    if value[:6].lower() == _BASIC:
        with suppress(binascii.Error):
            return value, binascii.a2b_base64(value[6:])
    return (value,)
