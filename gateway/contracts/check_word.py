"""The check word of an approval: it binds a decision in a chat to the call that the gateway showed there.

1. The word is an HMAC over the approval's id and the hash of the call, under a secret of that approval. So it cannot be
   computed from the text of a chat, and the word of another call never fits.
2. A model never sees a word: `masked` takes ids and words out of all requests to a model. A model that has read the
   whole conversation can repeat a text of the gateway, but not with an id and a word that decide anything.
"""

import base64
import hashlib
import hmac
import re
import secrets
from typing import Final

#: No vowels and no Y, so that no check word is a word of any language; no L, which looks like other characters.
LETTERS: Final = "BCDFGHJKMNPQRSTVWXZ"
#: 19 ** 6 is 47 million: each guess takes a message of a person.
WORD_CHARS: Final = 6
ID: Final = "ap_[a-z2-7]{26}"
WORD: Final = f"[{LETTERS.lower()}]{{{WORD_CHARS}}}(?![a-z0-9])"

#: An id in the JSON of a request, and the word behind it: what stands between may be escapes, also of JSON in JSON. It
#: begins with a character that has no case, which `re` looks for as fast as memory is read: megabytes go through it.
_SHOWN_IN_JSON = re.compile(
    rb"_(?<=ap_)(?P<id>[a-z2-7]{4})[a-z2-7]{22}"
    rb"(?:(?:\\+(?:[nrt]|u[0-9a-f]{4})?|[^A-Za-z0-9\\]){1,12}[%b]{%d}(?![A-Za-z0-9]))?"
    % ((LETTERS + LETTERS.lower()).encode(), WORD_CHARS),
    re.IGNORECASE,
)


def generate_approval_id() -> str:
    """Return `ap_` and 128 random bits as 26 characters of lower-case base32."""
    return "ap_" + base64.b32encode(secrets.token_bytes(16)).decode().rstrip("=").lower()


def generate_secret() -> str:
    """Return 128 random bits in hex, for one approval."""
    return secrets.token_hex(16)


def check_word(secret: str, approval_id: str, call_sha256: str) -> str:
    """Return the check word of an approval; `call_sha256` is the hash (hex) of tool and canonical arguments."""
    digest = hmac.digest(secret.encode(), f"{approval_id} {call_sha256}".encode(), hashlib.sha256)
    number = int.from_bytes(digest)
    letters = []
    for _ in range(WORD_CHARS):
        number, index = divmod(number, len(LETTERS))
        letters.append(LETTERS[index])
    return "".join(letters)


def is_expected_word(word: str, expected: str) -> bool:
    """Return whether a person typed the expected word, in upper or lower case."""
    return hmac.compare_digest(word.upper().encode(), expected.encode())


def mask_check_words(content: bytes) -> bytes:
    """Return the JSON of a request with each approval's id cut short and the word behind it taken out."""
    return _SHOWN_IN_JSON.sub(_mask_shown_word, content)


def _mask_shown_word(shown: re.Match[bytes]) -> bytes:
    return b"_%b(not shown to models)" % shown["id"]
