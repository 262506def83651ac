"""The caller of a request: the one place that reads credentials.

Keys are known by their SHA-256 only; the look-up is by the full hash and the comparison takes constant time.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gateway.contracts.caller import Caller
from gateway.errors import GatewayError
from gateway.http.request_head import RequestHead

GATEWAY_HEADER = b"x-gateway-key"
#: Headers in which clients send the credential for an upstream; one of them may carry the gateway's key instead.
CREDENTIAL_HEADERS = (b"authorization", b"x-api-key")
_SOURCES = (GATEWAY_HEADER, *CREDENTIAL_HEADERS)


@dataclass(frozen=True, slots=True)
class Key:
    """A configured key: `digest` is the SHA-256 (32 bytes) of its text."""

    digest: bytes
    caller: Caller


LOCAL = Caller("local", "local", frozenset(("passthrough", "context", "tools", "approve", "admin", "metrics")))


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller, and the header fields (lower-case names) that carry the gateway's key and must not go on."""

    caller: Caller
    consumed: frozenset[bytes]


class LentKeys:
    """Tokens with which the console of this process sends requests in the name of a key that a person signed in with.

    A token stands for one key of one tenant, and each configuration looks it up by its name: a key that is gone, has
    another text, or is in another tenant takes its token with it, and one that has lost a scope narrows it. No token
    leaves the process.
    """

    def __init__(self) -> None:
        self._keys: dict[bytes, Key] = {}
        self._tokens: dict[tuple[bytes, str, str], str] = {}

    def lend(self, key: Key) -> str:
        """Return the token that stands for this key, the same each time."""
        known = _identity(key)
        if known not in self._tokens:
            token = self._tokens[known] = "lent-" + secrets.token_urlsafe(32)
            self._keys[token.encode()] = key
        return self._tokens[known]

    def key_of(self, token: bytes) -> Key | None:
        """Return the key that a token stands for, as it was then, or None."""
        return self._keys.get(token)

    def is_sent_with(self, head: RequestHead) -> bool:
        """Return whether a request carries one of these tokens: the console of this process sent it."""
        token = head.value(GATEWAY_HEADER)
        return token is not None and token in self._keys


class KeyRing:
    """The keys of one configuration. `lent` are the tokens that stand for some of them."""

    def __init__(self, keys: Iterable[Key], *, lent: LentKeys | None = None) -> None:
        self._keys = {key.digest: key for key in keys}
        self._by_name = {key.caller.name: key for key in self._keys.values()}
        self._lent = lent

    @property
    def is_empty(self) -> bool:
        """Return whether everybody who reaches us may do everything."""
        return not self._keys

    def recognise(self, head: RequestHead, *, upstream_has_key: bool) -> None:
        """Raise GatewayError (401, 400) unless `head` carries one of our keys, whatever that may do.

        `upstream_has_key` chooses what a client without one is told to do.
        """
        if self._keys:
            credentials = _credentials(head)
            tokens = [token for name, value in credentials.items() if (token := _token(name, value)) is not None]
            if not tokens:
                raise GatewayError("missing_api_key", _missing(upstream_has_key=upstream_has_key))
            if not any(self._find(token) for token in tokens):
                raise _invalid()

    def identify(self, head: RequestHead, *, upstream_has_key: bool, scope: str) -> Identity:
        """Return the caller of `head`, who must hold `scope`. Raises GatewayError (401, 403; 400: repeated credential).

        The key is read from X-Gateway-Key, else from `Authorization: Bearer`, else from `x-api-key`; the latter two
        only if the upstream has a key of its own: otherwise they are the client's credential for the upstream.
        """
        if not self._keys:
            return Identity(LOCAL, frozenset((GATEWAY_HEADER,)))
        credentials = _credentials(head)
        sources = _SOURCES if upstream_has_key else (GATEWAY_HEADER,)
        token = next((token for name in sources if (token := _token(name, credentials.get(name)))), None)
        if token is None:
            raise GatewayError("missing_api_key", _missing(upstream_has_key=upstream_has_key))
        key = self._find(token)
        if key is None:
            raise _invalid()
        if scope not in key.caller.scopes:
            raise GatewayError(
                "scope_missing",
                f"This gateway key lacks the scope {scope!r}: use another key, or add it under 'keys'.",
            )
        ours = {
            name for name, value in credentials.items() if value and (token in value or self._holds_key(name, value))
        }
        copies = {field.name for field in head.fields if field.value.rpartition(b" ")[2] == token}
        return Identity(key.caller, frozenset({*ours, *copies, GATEWAY_HEADER}))

    def named(self, name: str) -> Key | None:
        """Return the key of this name, or None."""
        return self._by_name.get(name)

    def holder(self, token: str) -> Key:
        """Return the key whose text this is. Raises GatewayError (invalid_api_key)."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        key = self._keys.get(digest)
        if key is None or not hmac.compare_digest(key.digest, digest):
            raise _invalid()
        return key

    def _holds_key(self, name: bytes, value: bytes) -> bool:
        """Return whether a credential header carries any key of this gateway."""
        token = _token(name, value)
        return token is not None and self._find(token) is not None

    def _find(self, token: bytes) -> Key | None:
        if self._lent is not None and (lent := self._lent.key_of(token)) is not None:
            now = self._by_name.get(lent.caller.name)
            return now if now is not None and _identity(now) == _identity(lent) else None
        digest = hashlib.sha256(token).digest()
        key = self._keys.get(digest)
        return key if key is not None and hmac.compare_digest(key.digest, digest) else None


def _identity(key: Key) -> tuple[bytes, str, str]:
    """Return what stays the same while a key is the same one; its scopes may change."""
    return key.digest, key.caller.name, key.caller.tenant


def _credentials(head: RequestHead) -> dict[bytes, bytes]:
    """Return the values of the credential headers; a second one is refused, whoever would have read which."""
    found: dict[bytes, bytes] = {}
    for field in head.fields:
        if field.name in _SOURCES:
            if field.name in found:
                raise GatewayError(
                    "invalid_header", "You sent this credential header twice: send it once.", param=field.name.decode()
                )
            found[field.name] = field.value
    return found


def _token(name: bytes, value: bytes | None) -> bytes | None:
    """Return the secret in a credential header's value."""
    if not value:
        return None
    if name != b"authorization":
        return value
    scheme, _, token = value.partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


def _invalid() -> GatewayError:
    return GatewayError(
        "invalid_api_key", "The gateway key is not valid: check it, or get one from the operator of this gateway."
    )


def _missing(*, upstream_has_key: bool) -> str:
    if upstream_has_key:
        return "No gateway key: send it as 'Authorization: Bearer <key>' (the api_key of an OpenAI client)."
    return "No gateway key: send it in the header X-Gateway-Key. 'Authorization' goes to the upstream unchanged."


#: (head, whether the upstream has a key of its own, scope) -> who asks; raises GatewayError.
Identify = Callable[[RequestHead, bool, str], Identity]
