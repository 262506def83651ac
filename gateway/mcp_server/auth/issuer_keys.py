"""The public keys of an issuer (RFC 7517): read when needed, kept for a time, and then no longer trusted.

1. Keys are read with the first token, and again after `FRESH_S`. Meanwhile the known keys serve.
2. A token that names an unknown key makes the gateway read them at once, but at most every `PAUSE_S`, and once for all
   callers. So forged tokens cause no flood of requests to the issuer.
3. If the issuer fails, the known keys serve until `TRUSTED_S` after they were read. Then no token is accepted, since
   the issuer may have withdrawn a key.

`jwt.PyJWKClient` would read keys, too. It blocks the event loop meanwhile, reads the keys again for each unknown one,
and trusts an unreachable issuer for ever.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import AllowedPublicKeys

from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.store import Json
from gateway.mcp.sdk_import import silence_loggers
from gateway.mcp.transport.guarded_network import GuardedNetwork
from gateway.mcp.transport.issuer import Issuer, IssuerError

log = logging.getLogger("gateway")

FRESH_S: Final = 600.0
TRUSTED_S: Final = 3600.0
PAUSE_S: Final = 10.0
_READ_TIMEOUT_S: Final = 10.0
_MOST_BYTES, _MOST_KEYS = 256 << 10, 100
#: RFC 7518 requires the least; one signature by a key of 16,384 bits can take 10 ms.
_LEAST_RSA_BITS, _MOST_RSA_BITS = 2048, 8192

#: Signatures that are accepted, by the type of a key. None of them has a secret that the gateway would have to share.
_RSA: Final = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"))
_BY_CURVE: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}


class UnknownKeyError(Exception):
    """The error that the issuer has no such key."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key, and the algorithms that it may be used with."""

    kid: str | None
    algorithms: frozenset[str]
    public: AllowedPublicKeys


class IssuerKeys:
    """The keys of one issuer. Without `jwks_url` the issuer's metadata names their place."""

    def __init__(self, issuer: str, jwks_url: str | None, *, clock: Clock) -> None:
        silence_loggers("httpcore2", "httpx2")
        self._issuer = issuer
        self._jwks_url = jwks_url
        self._clock = clock
        self._keys: tuple[SigningKey, ...] = ()
        self._read_s = self._tried_s = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def find_key(self, kid: str | None, algorithm: str) -> AllowedPublicKeys:
        """Return the key of that id which may sign so; without an id, the only one that may.

        Raises UnknownKeyError, and GatewayError (issuer_unavailable) if the issuer's keys are not known.
        """
        if self._get_age_s() > TRUSTED_S:
            await self._refresh_keys()
            if self._get_age_s() > TRUSTED_S:
                raise self._build_unavailable_error()
        elif self._get_age_s() > FRESH_S:
            self._begin()
        found = self._find_key(kid, algorithm)
        if found is None:
            await self._refresh_keys()
            found = self._find_key(kid, algorithm)
        if found is None:
            raise UnknownKeyError
        return found

    async def close(self) -> None:
        """End a request that is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    def _find_key(self, kid: str | None, algorithm: str) -> AllowedPublicKeys | None:
        """Return the key with this id, or the only one without an id, for an algorithm; or None."""
        found = [key for key in self._keys if algorithm in key.algorithms and kid in (None, key.kid)]
        return found[0].public if found and (kid is not None or len(found) == 1) else None

    def _get_age_s(self) -> float:
        return self._clock.monotonic() - self._read_s

    async def _refresh_keys(self) -> None:
        """Wait for the keys as they are now, unless they were read a moment ago."""
        if (reading := self._begin()) is not None:
            await asyncio.wait({reading})

    def _begin(self) -> asyncio.Task[None] | None:
        """Return the request under way, or a new one; None if the last one was a moment ago."""
        if self._reading is not None and not self._reading.done():
            return self._reading
        now_s = self._clock.monotonic()
        if now_s - self._tried_s < PAUSE_S:
            return None
        self._tried_s = now_s
        self._reading = asyncio.get_running_loop().create_task(self._fetch_keys(now_s))
        return self._reading

    async def _fetch_keys(self, now_s: float) -> None:
        """Read the issuer's keys; if that fails, log the cause and keep the old ones."""
        try:
            async with (
                asyncio.timeout(_READ_TIMEOUT_S),
                GuardedNetwork(private_networks=True, max_bytes=_MOST_BYTES) as web,
            ):
                issuer = Issuer(self._issuer, web=web)
                jwks = await issuer.request_json("GET", self._jwks_url or await issuer.get_url("jwks_uri"))
            found = parse_keys(jwks, self._issuer)
            if not found:
                raise IssuerError("the issuer's answer holds no key that signs tokens")
        except (IssuerError, TimeoutError) as error:
            reason = str(error) or "the issuer gave no answer in time"
            log.warning("the keys of the issuer %s could not be read: %s", self._issuer, reason)
        else:
            self._keys, self._read_s = found, now_s

    def _build_unavailable_error(self) -> GatewayError:
        """Return the error for a token that cannot be checked, as no keys could be read."""
        return GatewayError(
            "issuer_unavailable",
            "The gateway cannot check access tokens now, because it cannot read the keys of their issuer: try again "
            "shortly. The gateway's log has the reason.",
            retry_after_s=PAUSE_S,
        )


def parse_keys(jwks: Json, issuer: str) -> tuple[SigningKey, ...]:
    """Return the usable keys of a JWK set. Keys for encryption, secret keys and unknown types are left out."""
    entries = jwks.get("keys")
    listed = entries if isinstance(entries, list) else []
    if len(listed) > _MOST_KEYS:
        log.warning("the issuer %s has %d keys: only the first %d are used", issuer, len(listed), _MOST_KEYS)
    return tuple(
        key for entry in listed[:_MOST_KEYS] if isinstance(entry, dict) for key in _parse_signing_key(entry, issuer)
    )


def _parse_signing_key(entry: dict[str, Any], issuer: str) -> Iterator[SigningKey]:
    """Yield the key of an entry, if it is one that signs tokens."""
    algorithms = _list_algorithms(entry)
    kid = entry.get("kid")
    if not algorithms or "d" in entry or not (kid is None or isinstance(kid, str)):
        return
    try:
        public = jwt.PyJWK(entry, min(algorithms)).key
    except Exception:  # whatever the library makes of an odd entry: the other keys are usable
        return
    if isinstance(public, RSAPublicKey) and not _LEAST_RSA_BITS <= public.key_size <= _MOST_RSA_BITS:
        text = "the issuer %s has an RSA key of %d bits (kid %.100r), which is not used: %d to %d bits are accepted"
        log.warning(text, issuer, public.key_size, kid, _LEAST_RSA_BITS, _MOST_RSA_BITS)
        return
    yield SigningKey(kid, algorithms, public)


def _list_algorithms(entry: dict[str, Any]) -> frozenset[str]:
    """Return the algorithms that a key may be used with, by its type and its own `alg`."""
    operations = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return frozenset()
    kind, curve = entry.get("kty"), entry.get("crv")
    if kind == "RSA":
        able = _RSA
    elif kind in ("EC", "OKP") and isinstance(curve, str) and curve in _BY_CURVE:
        able = frozenset((_BY_CURVE[curve],))
    else:
        able = frozenset()
    named = entry.get("alg")
    return able if named is None else able & {named} if isinstance(named, str) else frozenset()
