"""Requests as a run sees them: their equality, and the client's mark that it repeats one."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.contracts.exchange import Exchange


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The facts that make two requests the same, and whether the client repeats one."""

    fingerprint: str
    idempotency_key: tuple[str, str, str] | None  # with tenant and caller
    repeats: bool
    size_bytes: int = 0  # of the request's body


def begins_with_record(exchange: Exchange) -> bool:
    """Return whether a run is on record before anything happens: a repeated request must find its response."""
    return exchange.client is not None and exchange.idempotency_key is not None


def fingerprint(*, tenant: str, caller: str, path: str, steering: Mapping[str, str], content: bytes) -> str:
    """Return the SHA-256 (hex) of caller, path, X-Context-* headers and the raw body."""
    digest = hashlib.sha256()
    for part in (tenant, caller, path, *(f"{k}={v}" for k, v in sorted(steering.items()))):
        data = part.encode(errors="surrogateescape")
        digest.update(b"%d:" % len(data) + data)
    digest.update(content)
    return digest.hexdigest()
