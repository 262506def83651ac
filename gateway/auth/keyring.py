"""The caller of a request: the one place that reads credentials.

Keys are known by their SHA-256 only; the look-up is by the full hash and the comparison takes constant time. Whether a
key has ended, and from which networks it may be used, is looked at for each request.
"""

import hashlib
import hmac
import secrets
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Protocol

from gateway.auth.beats import Beats
from gateway.auth.credentials import (
    GATEWAY_HEADER,
    KEY_HEADERS,
    find_key_candidates,
    find_key_fields,
    parse_token,
    read_fields,
)
from gateway.contracts.caller import LOCAL, Caller, Network
from gateway.contracts.errors import GatewayError
from gateway.http.request_head import RequestHead

_ANY = "any"  # in place of a scope: any will do


@dataclass(frozen=True, slots=True)
class Key:
    """A key: `digest` is the SHA-256 (32 bytes) of its text."""

    digest: bytes
    caller: Caller

    def has_ended(self, now_s: float) -> bool:
        """Return whether the key is not valid any more at this time (Unix)."""
        expires_s = self.caller.bounds.expires_s
        return expires_s is not None and expires_s <= now_s

    def is_open_to(self, peer: str | None) -> bool:
        """Return whether the key may be used from this address; None, which no network contains: it is not known."""
        networks = self.caller.bounds.networks
        return not networks or _contains_address(networks, peer)

    def check_end(self, now_s: float) -> None:
        """Raise GatewayError (key_expired) if the key is not valid any more at this time (Unix)."""
        if self.has_ended(now_s):
            ended = datetime.fromtimestamp(self.caller.bounds.expires_s or 0.0, UTC)
            raise GatewayError(
                "key_expired",
                f"This gateway key expired at {ended:%Y-%m-%dT%H:%M:%SZ}: get another one from the operator of this "
                "gateway.",
            )

    def check_network(self, peer: str | None) -> None:
        """Raise GatewayError (network_not_allowed) unless the key may be used from this address."""
        if not self.is_open_to(peer):
            raise GatewayError(
                "network_not_allowed",
                f"This gateway key may not be used from {peer or 'an unknown address'}: use it in one of its networks, "
                "or have the operator of this gateway add yours.",
            )


class Wire(Protocol):
    """The transport of a connection, as the source of its peer's address."""

    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


def get_peer_address(wire: Wire) -> str | None:
    """Return the address of a client by its connection; None: it is connected over a local socket."""
    name = wire.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) and name else None


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller, and the header fields (lower-case names) that carry a key of the gateway and must not go on.

    `key` is the one that the caller sent; None: no keys exist, or it sent a token. `texts` are the texts of all keys of
    the gateway that the head holds, wherever they stand.
    """

    caller: Caller
    consumed: frozenset[bytes]
    key: Key | None = None
    texts: frozenset[bytes] = field(default=frozenset(), repr=False)


@dataclass(slots=True)
class _CheckedKey:
    """The key of a head, as the keys were in this state (`KeyRing.build_state`). It is not changed."""

    state: object
    key: Key
    token: bytes = field(repr=False)
    identity: Identity | None = None


class LentKeys:
    """Tokens with which the console of this process sends requests in the name of a key that a person signed in with.

    A token stands for one key of one tenant, and each request looks it up anew: a key that is gone, has another text
    or name, or is in another tenant takes its token with it, and one that has lost a scope narrows it. No token leaves
    the process.
    """

    def __init__(self) -> None:
        self._keys: dict[bytes, Key] = {}
        self._tokens: dict[tuple[bytes, str, str], str] = {}

    def get_lent_token(self, key: Key) -> str:
        """Return the token that stands for this key, the same each time."""
        known = _get_identity(key)
        if known not in self._tokens:
            token = self._tokens[known] = "lent-" + secrets.token_urlsafe(32)
            self._keys[token.encode()] = key
        return self._tokens[known]

    def find_key(self, token: bytes) -> Key | None:
        """Return the key that a token stands for, as it was then, or None."""
        return self._keys.get(token)

    def has_sent(self, head: RequestHead) -> bool:
        """Return whether a request carries one of these tokens: the console of this process sent it."""
        token = head.find_value(GATEWAY_HEADER)
        return token is not None and token in self._keys


class StoredKeys:
    """The keys of one worker that were made at run time, as the store had them last.

    `version` grows with each change. `used_s` is when each key was used last (Unix), by its digest. Where the worker
    stood still, as its `beats` say, none of the keys counts before they are read again.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.beats = Beats(clock)
        self.by_digest: Mapping[bytes, Key] = {}
        self.used_s: dict[bytes, float] = {}
        self.version = 0

    def replace(self, keys: Iterable[Key]) -> None:
        """Use these keys from the next request on. A key that is equal to one in use stays the same object."""
        old = self.by_digest
        new = {key.digest: old[key.digest] if old.get(key.digest) == key else key for key in keys}
        if new != old:
            self.by_digest, self.version = new, self.version + 1


class KeyRing:
    """The keys of one configuration. `lent` are the tokens that stand for some of them.

    `stored` are the keys made at run time. None: there are none, and without configured keys every client may do
    everything. `now_s` returns the time (Unix).
    """

    def __init__(
        self,
        keys: Iterable[Key],
        *,
        lent: LentKeys | None = None,
        stored: StoredKeys | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._keys = {key.digest: key for key in keys}
        self._lent = lent
        self._stored = stored
        self._now_s = now_s
        self._ends: tuple[int, Sequence[float]] | None = None  # of the keys of a version, in order
        self._names: tuple[int, Mapping[str, Sequence[Key]]] | None = None  # the keys of a version, by their names

    @property
    def is_empty(self) -> bool:
        """Return whether there are no keys, so that every client may do everything."""
        return not self._keys and self._stored is None

    def recognise(self, head: RequestHead, *, upstream_has_key: bool) -> None:
        """Raise GatewayError (401, 403, 400) unless `head` carries one of our keys, whatever that may do.

        `upstream_has_key` chooses the advice to a client without one.
        """
        if self.is_empty or self._find_checked(head, _ANY) is not None:
            return
        credentials = head.remember_derived(read_fields)
        tokens = [token for name, value in credentials.items() if (token := parse_token(name, value)) is not None]
        if not tokens:
            raise GatewayError("missing_api_key", _describe_missing_key(upstream_has_key=upstream_has_key))
        for token in tokens:
            if (key := self._find_by_token(token)) is not None:
                self._check_key(key, token, head)
                head.derived[_ANY] = _CheckedKey(self.build_state(), key, token)
                return
        raise build_invalid_key_error()

    def identify(self, head: RequestHead, *, upstream_has_key: bool, scope: str) -> Identity:
        """Return the caller of `head`, who must hold `scope`. Raises GatewayError (401, 403; 400: repeated credential).

        The key is read from X-Gateway-Key, else from `Authorization: Bearer`, else from `x-api-key`. If the upstream
        has no configured key, what the latter two hold may be the client's credential for it: a valid key counts.
        """
        if self.is_empty:
            return Identity(LOCAL, frozenset((GATEWAY_HEADER,)))
        asked = upstream_has_key, scope
        if (told := self._find_checked(head, asked)) is not None and told.identity is not None:
            return told.identity
        credentials = head.remember_derived(read_fields)
        tokens = [token for name in KEY_HEADERS if (token := parse_token(name, credentials.get(name)))]
        if not upstream_has_key and not parse_token(GATEWAY_HEADER, credentials.get(GATEWAY_HEADER)):
            tokens = [token for token in tokens if self._find_by_token(token) is not None]
        if not tokens:
            raise GatewayError("missing_api_key", _describe_missing_key(upstream_has_key=upstream_has_key))
        token = tokens[0]
        key = self._find_by_token(token)
        if key is None:
            raise build_invalid_key_error()
        self._check_key(key, token, head)
        if scope not in key.caller.scopes:
            raise GatewayError(
                "scope_missing",
                f"This gateway key lacks the scope {scope!r}: use another key, or have the scope added to this one.",
            )
        sent = {text for name, value in credentials.items() if (text := parse_token(name, value)) is not None}
        texts = frozenset((token, *filter(self._find_by_token, sent - {token}), *self._find_gateway_keys(head)))
        identity = Identity(key.caller, frozenset((GATEWAY_HEADER, *find_key_fields(head, texts))), key, texts)
        head.derived[asked] = _CheckedKey(self.build_state(), key, token, identity)
        return identity

    def get_keys_by_name(self, name: str) -> Sequence[Key]:
        """Return the keys of this name that have not ended: one that was replaced is valid a while longer."""
        now_s, version = self._now_s(), self._version
        if self._names is None or self._names[0] != version:
            by_name: dict[str, list[Key]] = {}
            for key in self._list_keys():
                by_name.setdefault(key.caller.name, []).append(key)
            self._names = version, by_name
        return [key for key in self._names[1].get(name, ()) if not key.has_ended(now_s)]

    def list_callers(self) -> Sequence[Caller]:
        """Return the callers that the keys stand for, except keys that have ended."""
        now_s = self._now_s()
        return [key.caller for key in self._list_keys() if not key.has_ended(now_s)]

    def list_deciders(self, tenant: str) -> Sequence[str]:
        """Return the names of the keys of a tenant that may decide on approvals now."""
        now_s = self._now_s()
        deciding = (key for key in self._list_keys() if key.caller.tenant == tenant and "approve" in key.caller.scopes)
        return list(dict.fromkeys(key.caller.name for key in deciding if not key.has_ended(now_s)))

    def find_key(self, token: str, *, peer: str | None) -> Key:
        """Return the key whose text this is, used from the address `peer`. Raises GatewayError (401, 403)."""
        key = self._find_by_text(token.encode("utf-8", "surrogatepass"))
        if key is None:
            raise build_invalid_key_error()
        key.check_end(self._now_s())
        key.check_network(peer)
        self._note_use(key)
        return key

    def allows(self, key: Key, peer: str | None) -> bool:
        """Return whether a key with which something began may be used now as it was then, from the address `peer`."""
        now = self._find_by_digest(key.digest)
        if now is None or _get_identity(now) != _get_identity(key) or not key.caller.scopes <= now.caller.scopes:
            return False
        return not now.has_ended(self._now_s()) and now.is_open_to(peer)

    def is_key_current(self, key: Key, wire: Wire) -> bool:
        """Return whether this very key is in use and may be used now, over this connection; and note that it was.

        It checks keys that end, or are bound to networks, or can be revoked, before a request uses a remembered plan.
        """
        stored = self._find_stored(key)
        if self._find_by_digest(key.digest) is not key or key.has_ended(self._now_s()):
            return False
        if stored is not None and stored.beats.is_doubtful:
            return False
        if key.caller.bounds.networks and not key.is_open_to(get_peer_address(wire)):
            return False
        if stored is not None:
            stored.used_s[key.digest] = self._now_s()
        return True

    def is_watched(self, key: Key) -> bool:
        """Return whether a key is checked on each request: it ends, is bound to networks, or is stored."""
        bounds = key.caller.bounds
        return bounds.expires_s is not None or bool(bounds.networks) or key.digest not in self._keys

    def build_state(self) -> object:
        """Return a value that is equal to an earlier one as long as no key has changed, was revoked, or has ended."""
        version = self._version
        if self._ends is None or self._ends[0] != version:
            self._ends = (
                version,
                sorted(s for key in self._list_keys() if (s := key.caller.bounds.expires_s) is not None),
            )
        return self, version, bisect_right(self._ends[1], self._now_s()) if self._ends[1] else 0

    @property
    def _version(self) -> int:
        """Return a number that changes with the keys."""
        return 0 if self._stored is None else self._stored.version

    def _find_checked(self, head: RequestHead, asked: object) -> "_CheckedKey | None":
        """Return the result for an equal head while the keys were the same. Raises GatewayError as `_check_key`."""
        told: _CheckedKey | None = head.derived.get(asked)
        if told is None or told.state != self.build_state():
            return None
        self._check_key(told.key, told.token, head)
        return told

    def _check_key(self, key: Key, token: bytes, head: RequestHead) -> None:
        """Check that the key of a token of a request may be used now, and note that it was. Raises GatewayError.

        The console has checked the address of the person that it sends a request for.
        """
        bounds, stored = key.caller.bounds, self._find_stored(key)
        if stored is not None and stored.beats.is_doubtful:
            text = "This worker stood still, and reads again which keys are valid: send the request again."
            raise GatewayError("overloaded", text, retry_after_s=1)
        if bounds.expires_s is not None:
            key.check_end(self._now_s())
        if bounds.networks and (self._lent is None or self._lent.find_key(token) is None):
            key.check_network(head.peer)
        if stored is not None:
            stored.used_s[key.digest] = self._now_s()

    def _find_stored(self, key: Key) -> StoredKeys | None:
        """Return the keys of the store if this is one of them, and not one of the configuration."""
        return None if self._stored is None or key.digest in self._keys else self._stored

    def _find_by_token(self, token: bytes) -> Key | None:
        """Return the key of a token: a lent one, one of the configuration or one of the store; or None."""
        if self._lent is not None and (lent := self._lent.find_key(token)) is not None:
            now = self._find_by_digest(lent.digest)
            return now if now is not None and _get_identity(now) == _get_identity(lent) else None
        return self._find_by_text(token)

    def _find_gateway_keys(self, head: RequestHead) -> list[bytes]:
        """Return the words of a head that are keys of the gateway: it has dozens, and few or none are."""
        keys, lent = self._keys, self._lent
        stored: Mapping[bytes, Key] = {} if self._stored is None else self._stored.by_digest
        return [
            word
            for word, digest in find_key_candidates(head)
            if digest in keys or digest in stored or (lent is not None and lent.find_key(word) is not None)
        ]

    def _find_by_text(self, token: bytes) -> Key | None:
        digest = hashlib.sha256(token).digest()
        key = self._find_by_digest(digest)
        return key if key is not None and hmac.compare_digest(key.digest, digest) else None

    def _find_by_digest(self, digest: bytes) -> Key | None:
        key = self._keys.get(digest)
        return key if key is not None or self._stored is None else self._stored.by_digest.get(digest)

    def _list_keys(self) -> Sequence[Key]:
        return [*self._keys.values(), *(() if self._stored is None else self._stored.by_digest.values())]

    def _note_use(self, key: Key) -> None:
        if (stored := self._find_stored(key)) is not None:
            stored.used_s[key.digest] = self._now_s()


def _get_identity(key: Key) -> tuple[bytes, str, str]:
    """Return what stays the same while a key is the same one; its scopes may change."""
    return key.digest, key.caller.name, key.caller.tenant


@lru_cache(maxsize=4096)
def _contains_address(networks: tuple[Network, ...], peer: str | None) -> bool:
    """Return whether one of the networks contains an address. One of IPv4 may have come over IPv6."""
    try:
        address: IPv4Address | IPv6Address = ip_address((peer or "").partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in networks)


def build_invalid_key_error() -> GatewayError:
    """Return the error for a key that is none, or is none any more."""
    return GatewayError(
        "invalid_api_key", "The gateway key is not valid: check it, or get one from the operator of this gateway."
    )


def _describe_missing_key(*, upstream_has_key: bool) -> str:
    """Return the advice to a client without a gateway key."""
    if upstream_has_key:
        return "No gateway key: send it as 'Authorization: Bearer <key>' (the api_key of an OpenAI client)."
    return (
        "No gateway key: send it as 'Authorization: Bearer <key>' (the api_key of an OpenAI client), or in the header "
        "X-Gateway-Key beside a key for the upstream. Any other 'Authorization' goes to the upstream."
    )


#: (head, whether the upstream has its own key, scope) -> the caller; raises GatewayError.
Identify = Callable[[RequestHead, bool, str], Identity]
