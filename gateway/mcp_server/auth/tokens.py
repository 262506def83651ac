"""Access tokens (JWT, RFC 9068) of one issuer: checked, and made a caller with scopes and tenant.

Only signatures with public keys are accepted, each with the algorithms of its key, so a token cannot choose how it is
checked. A token must name issuer, audience and its end. Claims grant only what the configuration says of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import jwt

from gateway.config.schema.serve_oauth import CALLER_PREFIX, ServeOAuth
from gateway.config.values.scalars import parse_label
from gateway.contracts.caller import Caller
from gateway.contracts.plugin import Clock
from gateway.errors import GatewayError
from gateway.mcp_server.auth.issuer_keys import IssuerKeys, UnknownKeyError

#: Clocks of issuer and gateway may differ by this.
LEEWAY_S: Final = 30.0
_TYPES = frozenset(("jwt", "at+jwt", "application/at+jwt"))
_REASONS: Final[Mapping[type[jwt.PyJWTError], str]] = {
    jwt.ExpiredSignatureError: "it has expired: get a new one from its issuer",
    jwt.ImmatureSignatureError: "it is not valid yet: compare the clocks of issuer and gateway",
    jwt.InvalidAudienceError: "it is for another audience: request it for this gateway",
    jwt.InvalidIssuerError: "it is from another issuer",
    jwt.MissingRequiredClaimError: "one of the claims 'iss', 'aud' and 'exp' is missing",
}


class Tokens:
    """The check of access tokens by one configuration."""

    def __init__(self, settings: ServeOAuth, *, clock: Clock) -> None:
        self.settings = settings
        self._keys = IssuerKeys(settings.issuer, settings.jwks_url, clock=clock)

    async def caller(self, token: bytes) -> Caller:
        """Return the caller that a token is about. Raises GatewayError.

        invalid_api_key: it is not from this issuer. invalid_token: it is, and is not valid here or now.
        issuer_unavailable: nobody can say.
        """
        claims = await self._claims(token)
        return Caller(self._name(claims), self._tenant(claims), self._scopes(claims))

    async def close(self) -> None:
        await self._keys.close()

    async def _claims(self, token: bytes) -> Mapping[str, Any]:
        settings = self.settings
        try:
            header = jwt.get_unverified_header(token)
            algorithm, kind = header.get("alg"), header.get("typ", "JWT")
            if not isinstance(algorithm, str) or not isinstance(kind, str) or kind.lower() not in _TYPES:
                raise _forged()
            claims: Mapping[str, Any] = jwt.decode(
                token,
                await self._keys.key(header.get("kid"), algorithm),
                algorithms=[algorithm],  # one of those of the key, or there is no key
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=LEEWAY_S,
                options={"require": ["iss", "aud", "exp"], "enforce_minimum_key_length": True},
            )
        except tuple(_REASONS) as error:
            raise _invalid(_REASONS[type(error)]) from None
        except (jwt.PyJWTError, UnknownKeyError):
            raise _forged() from None
        return claims

    def _name(self, claims: Mapping[str, Any]) -> str:
        return CALLER_PREFIX + _label(claims, self.settings.caller_claim)

    def _tenant(self, claims: Mapping[str, Any]) -> str:
        settings = self.settings
        if settings.tenant_claim is not None:
            return _label(claims, settings.tenant_claim)
        assert settings.tenant is not None  # a configuration without both is refused
        return settings.tenant

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[str]:
        granted = self.settings.scopes
        words = _words(_value(claims, self.settings.scope_claim))
        return frozenset(scope for word in words for scope in granted.get(word, ()))


def _value(claims: Mapping[str, Any], name: str) -> object:
    """Return the claim of that name, or what dots lead to; None if there is none."""
    if name in claims:
        return claims[name]
    first, dot, rest = name.partition(".")
    below = claims.get(first)
    return _value(below, rest) if dot and isinstance(below, Mapping) else None


def _words(value: object) -> Iterator[str]:
    """Yield the words of a claim: those of a text, or the texts of a list."""
    if isinstance(value, str):
        yield from value.split()
    elif isinstance(value, list):
        yield from (item for item in value if isinstance(item, str))


def _label(claims: Mapping[str, Any], name: str) -> str:
    """Return the name that a claim holds. Raises GatewayError (invalid_token)."""
    try:
        return parse_label(_value(claims, name))
    except ValueError:
        raise _invalid(f"its claim {name!r} is not a name of 1 to 128 characters") from None


def _forged() -> GatewayError:
    return GatewayError(
        "invalid_api_key", "This is neither a gateway key nor a token of the issuer: check it, or get a new one."
    )


def _invalid(reason: str) -> GatewayError:
    return GatewayError("invalid_token", f"The access token is not valid here: {reason}.")
