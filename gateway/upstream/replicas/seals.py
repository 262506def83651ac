"""The seal of a request from one worker to another: a header field that only gateways of one store can write.

1. The seal binds the receiver, the request with its fields, and the SHA-256 of its body. A receiver is one process, so
   a recorded request is of no use for any other.
2. Each request of a sender has the next number. A receiver accepts a number once, so a request that is sent again has
   no effect. No clock is needed.
3. The address of the client is a part of the seal: the receiver checks keys by it, as the first gateway did.
"""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import orjson

#: The field that carries the seal.
SEAL_FIELD: Final = b"x-twolane-replica"
#: The secret of the store from which seals are made.
SEAL_SECRET: Final = "replicas"  # noqa: S105 - its name
#: These belong to the connection.
_NOT_SEALED: Final = frozenset((SEAL_FIELD, b"host", b"connection", b"content-length"))
#: Requests of one sender may overtake each other by so many.
_WINDOW: Final = 4096
#: Beyond so many senders the one that was silent for the longest time is forgotten: a gateway that ended long ago.
_MOST_SENDERS: Final = 1000
_VERSION: Final = "1"

SealedFields: TypeAlias = Iterable[tuple[bytes, bytes]]


class SealError(Exception):
    """The error for a request without a valid seal."""


@dataclass(frozen=True, slots=True)
class ReplicaSeal:
    """The facts that a seal proves: the worker that sends a request, and the address of the client behind it."""

    sender: str
    client: str | None
    body_sha256: str

    def fits(self, body: bytes) -> bool:
        """Return whether this is the body of the sealed request."""
        return hmac.compare_digest(hashlib.sha256(body).hexdigest(), self.body_sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedRequest:
    """The parts of a request that its seal binds. `fields` are all of the head, those of the connection included."""

    method: bytes
    target: bytes
    fields: SealedFields

    def list_texts(self) -> list[str]:
        named = [(name.lower(), value) for name, value in self.fields if name.lower() not in _NOT_SEALED]
        parts = [self.method, self.target, *(part for field in named for part in field)]
        return [part.decode("latin-1") for part in parts]


class _SeenNumbers:
    """The numbers that a sender has used, of the last `_WINDOW` ones."""

    __slots__ = ("_highest", "_seen")

    def __init__(self) -> None:
        self._highest = 0
        self._seen = 0  # bit N: the number `_highest` - N

    def take(self, number: int) -> bool:
        """Return whether a number is new, and take it."""
        if number > self._highest:
            shift = min(number - self._highest, _WINDOW)
            self._seen = (self._seen << shift) & ((1 << _WINDOW) - 1) | 1
            self._highest = number
            return True
        behind = self._highest - number
        if behind >= _WINDOW or self._seen >> behind & 1:
            return False
        self._seen |= 1 << behind
        return True


class ReplicaSeals:
    """The seals that one worker, `owner`, writes and reads. `secret` is the store's."""

    def __init__(self, secret: bytes, *, owner: str) -> None:
        self._secret = secret
        self._owner = owner
        self._number = 0
        self._senders: OrderedDict[str, _SeenNumbers] = OrderedDict()

    def write(self, request: SealedRequest, body: bytes, *, receiver: str, client: str | None) -> bytes:
        """Return the value of the field that seals a request to `receiver`."""
        self._number += 1
        digest = hashlib.sha256(body).hexdigest()
        facts = [_VERSION, self._owner, str(self._number), client or "-", digest]
        return " ".join([*facts, self._compute_mac(facts, request, receiver)]).encode("ascii", "replace")

    def read(self, request: SealedRequest) -> ReplicaSeal:
        """Return the seal of a request to this worker. Raises SealError: it has none, or not a valid one."""
        values = [value for name, value in request.fields if name.lower() == SEAL_FIELD]
        parts = values[0].decode("latin-1").split(" ") if len(values) == 1 else []
        if len(parts) != 6 or parts[0] != _VERSION or not parts[2].isdecimal():
            raise SealError("it has no seal of a gateway")
        facts, mac = parts[:-1], parts[-1]
        if not hmac.compare_digest(self._compute_mac(facts, request, self._owner).encode(), mac.encode("latin-1")):
            raise SealError("its seal is not that of a gateway on this store, or it is for another one")
        _, sender, number, client, digest = facts
        numbers = self._senders.setdefault(sender, _SeenNumbers())
        self._senders.move_to_end(sender)
        if len(self._senders) > _MOST_SENDERS:
            self._senders.popitem(last=False)
        if not numbers.take(int(number)):
            raise SealError("it was received before")
        return ReplicaSeal(sender, None if client == "-" else client, digest)

    def _compute_mac(self, facts: list[str], request: SealedRequest, receiver: str) -> str:
        sealed = orjson.dumps([receiver, *facts, *request.list_texts()])
        return hmac.new(self._secret, sealed, hashlib.sha256).hexdigest()
