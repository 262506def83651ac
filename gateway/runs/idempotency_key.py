"""Requests as a run sees them: their equality, and the client's mark that it repeats one."""

import hashlib
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange


@dataclass(slots=True)
class RequestKey:
    """The facts that make two requests the same, and whether the client repeats one. It is not changed.

    `may_repeat`: the client marks no repeats. Two equal requests of its are two, unless the first has lost its client.
    """

    fingerprint: str
    idempotency_key: tuple[str, str, str] | None  # with tenant and caller
    repeats: bool
    size_bytes: int = 0  # of the request's body
    may_repeat: bool = False


#: By then the run that has the key is on record everywhere.
_AGAIN_S: Final = 0.5


def build_key_in_use_error() -> GatewayError:
    """Return the error of a request whose Idempotency-Key another worker has given to a run at the same moment."""
    return GatewayError(
        "idempotency_in_use",
        "The same request with this Idempotency-Key has just begun, and this one has done nothing: send it again to "
        "get the answer of the first.",
        param="idempotency-key",
        retry_after_s=_AGAIN_S,
    )


def build_mismatch_error() -> GatewayError:
    """Return the error of an Idempotency-Key that belongs to another request."""
    return GatewayError(
        "idempotency_mismatch",
        "This Idempotency-Key came with another request before; use a new one.",
        param="idempotency-key",
    )


def begins_with_record(exchange: Exchange) -> bool:
    """Return whether a run is on record before anything happens: a repeated request must find it by its key."""
    return exchange.origin.idempotency_key is not None


def hash_request(
    *,
    tenant: str,
    caller: str,
    path: str,
    steering: Mapping[str, str],
    content: bytes,
    ignored: Container[str] = frozenset(),
) -> str:
    """Return the SHA-256 (hex) of caller, path, X-Context-* headers and the body's content without `ignored` fields."""
    digest = hashlib.sha256()
    for part in (tenant, caller, path, *(f"{k}={v}" for k, v in sorted(steering.items()))):
        data = part.encode(errors="surrogateescape")
        digest.update(b"%d:" % len(data) + data)
    digest.update(_sort_keys(content, ignored=ignored))
    return digest.hexdigest()


def _sort_keys(content: bytes, *, ignored: Container[str]) -> bytes:
    """Return JSON with the keys of its objects in order: Codex writes them in another one when it repeats a request."""
    try:
        found = orjson.loads(content)
        if ignored and isinstance(found, dict):
            found = {name: value for name, value in found.items() if name not in ignored}
        return orjson.dumps(found, option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return content  # not what orjson writes, but maybe what another parser reads
