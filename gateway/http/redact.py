"""Keeps the upstream's key out of its own error texts: the one case in which bytes of a passthrough body are changed.

Some upstreams repeat the credential that they refuse. Where it is the gateway's and not the client's, it is overwritten
with as many asterisks, so that lengths and chunk framing stay true. Heads stay as they came, and so does every answer
of an upstream whose key is short or a word: replacing such keys would break answers (docs/decisions/0022).
"""

from gateway.http.body import Body

#: Keys below this length, or without a letter and a digit, are not looked for: they stand in texts by themselves.
LEAST_KEY_BYTES = 16


def get_maskable_key(key: bytes | None) -> bytes | None:
    """Return the key of an upstream if it is long and varied enough to be masked safely, or None."""
    if key is None or len(key) < LEAST_KEY_BYTES:
        return None
    return key if any(48 <= c <= 57 for c in key) and any(chr(c).isalpha() for c in key) else None


class RedactedBody:
    """A body in which `secret` is overwritten. `hold`: a beginning of it at the end of a segment waits for the next."""

    def __init__(self, body: Body, secret: bytes, *, hold: bool) -> None:
        self._body = body
        self._secret = secret
        self._hold = hold
        self._held = b""

    @property
    def done(self) -> bool:
        return self._body.done

    @property
    def rest(self) -> bytes:
        return self._body.rest

    @property
    def waiting(self) -> bool:
        return self._body.waiting

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to forward with the secret masked, also one that is split over pieces."""
        text = mask(self._held + self._body.feed(data), self._secret)
        self._held = b""
        if self._hold and not self._body.done:
            length = next((n for n in range(len(self._secret) - 1, 0, -1) if text.endswith(self._secret[:n])), 0)
            if length:
                text, self._held = text[:-length], text[-length:]
        return text


def mask(text: bytes, secret: bytes) -> bytes:
    """Return `text` with each occurrence of `secret` overwritten."""
    return text.replace(secret, b"*" * len(secret))
