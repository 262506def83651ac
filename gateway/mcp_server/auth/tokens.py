"""Access tokens (JWT, RFC 9068) of one issuer: checked, and made a caller with scopes and tenant.

1. Only signatures with public keys are accepted, each with the algorithms of its key, so a token cannot choose how it
   is checked.
2. A token must name issuer, audience and its end. Claims grant only what the configuration allows them.
3. RFC 9068 requires the type `at+jwt`. Most issuers write `JWT` or none, so these are accepted, too. Then the audience
   distinguishes an access token from an ID token, whose audience is a client. So do the claims that only ID tokens
   have.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import jwt

from gateway.config.schema.serve_oauth import CALLER_PREFIX, ServeOAuth
from gateway.config.values.scalars import parse_shown_name
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock
from gateway.mcp.server_text import remove_invisible
from gateway.mcp_server.auth.issuer_keys import IssuerKeys, UnknownKeyError

#: Clocks of issuer and gateway may differ by this.
LEEWAY_S: Final = 30.0
_ACCESS_TOKEN, _ANY_TOKEN = "at+jwt", "jwt"
#: Claims of ID tokens only (OpenID Connect Core, section 3.3.2.11).
_OF_ID_TOKENS: Final = frozenset(("at_hash", "c_hash"))
#: Times behind it are none: this is the year 10000 in seconds, and 1978 in milliseconds.
_LAST_S: Final = 253_402_300_800
_REASONS: Final[Mapping[type[jwt.PyJWTError], str]] = {
    jwt.InvalidAudienceError: "it is for another audience: request it for this gateway",
    jwt.InvalidIssuerError: "it is from another issuer",
    jwt.exceptions.InvalidSubjectError: "its claim 'sub' is not a text",
    jwt.exceptions.InvalidJTIError: "its claim 'jti' is not a text",
    jwt.MissingRequiredClaimError: "one of the claims 'iss', 'aud' and 'exp' is missing",
}


class AccessTokenVerifier:
    """The check of access tokens by one configuration."""

    def __init__(self, settings: ServeOAuth, *, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._keys = IssuerKeys(settings.issuer, settings.jwks_url, clock=clock)

    async def find_caller(self, token: bytes) -> Caller:
        """Return the caller that a token is about. Raises GatewayError.

        invalid_api_key: it is not from this issuer. invalid_token: it is, and is not valid here or now.
        issuer_unavailable: the issuer's keys cannot be read.
        """
        claims = await self._verify_claims(token)
        return Caller(self._build_caller_name(claims), self._get_tenant(claims), self._collect_scopes(claims))

    async def close(self) -> None:
        await self._keys.close()

    async def _verify_claims(self, token: bytes) -> Mapping[str, Any]:
        """Return the claims of a token whose signature, issuer, audience and times are valid."""
        settings = self.settings
        try:
            header = jwt.get_unverified_header(token)
            algorithm, kind = header.get("alg"), _get_token_type(header)
            if not isinstance(algorithm, str) or kind not in (_ACCESS_TOKEN, _ANY_TOKEN):
                raise _build_token_error()
            claims: Mapping[str, Any] = jwt.decode(
                token,
                await self._keys.find_key(header.get("kid"), algorithm),
                algorithms=[algorithm],  # one of the key's algorithms, or there is no key
                audience=settings.audience,
                issuer=settings.issuer,
                options={
                    "require": ["iss", "aud", "exp"],
                    # Times are checked below: the library takes texts for times, and reports odd times as it reports
                    # a wrong signature.
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except tuple(_REASONS) as error:
            raise _build_invalid_error(_REASONS[type(error)]) from None
        except (jwt.PyJWTError, UnknownKeyError):
            raise _build_token_error() from None
        if kind == _ANY_TOKEN and not _OF_ID_TOKENS.isdisjoint(claims):
            raise _build_invalid_error("it is an ID token: send the access token")
        _check_times(claims, now_s=self._clock.time())
        return claims

    def _build_caller_name(self, claims: Mapping[str, Any]) -> str:
        return CALLER_PREFIX + _read_label(claims, self.settings.caller_claim)

    def _get_tenant(self, claims: Mapping[str, Any]) -> str:
        settings = self.settings
        if settings.tenant_claim is not None:
            return _read_label(claims, settings.tenant_claim)
        assert settings.tenant is not None  # a configuration without both is refused
        return settings.tenant

    def _collect_scopes(self, claims: Mapping[str, Any]) -> frozenset[str]:
        granted = self.settings.scopes
        words = _split_words(_find_claim(claims, self.settings.scope_claim))
        return frozenset(scope for word in words for scope in granted.get(word, ()))


def _get_token_type(header: Mapping[str, Any]) -> str | None:
    """Return the type that a token states, as RFC 7515 (section 4.1.9) compares types."""
    kind = header.get("typ", _ANY_TOKEN)
    return kind.lower().removeprefix("application/") if isinstance(kind, str) else None


def _check_times(claims: Mapping[str, Any], *, now_s: float) -> None:
    """Raise GatewayError (invalid_token) unless a token is valid now, in Unix time."""
    times = {name: _get_time(claims, name) for name in ("exp", "nbf", "iat") if name in claims}
    if times.pop("exp") <= now_s - LEEWAY_S:
        raise _build_invalid_error("it has expired: get a new one from its issuer")
    if any(time_s > now_s + LEEWAY_S for time_s in times.values()):
        raise _build_invalid_error("it is not valid yet: compare the clocks of issuer and gateway")


def _get_time(claims: Mapping[str, Any], name: str) -> float:
    """Return the Unix time that a claim holds. Raises GatewayError (invalid_token)."""
    time_s = claims[name]
    if isinstance(time_s, bool) or not isinstance(time_s, int | float) or not 0 <= time_s < _LAST_S:
        raise _build_invalid_error(f"its claim {name!r} is not a time in seconds")
    return time_s


def _find_claim(claims: Mapping[str, Any], name: str) -> object:
    """Return a claim by its name, or by a path of names with dots; None: there is none."""
    if name in claims:
        return claims[name]
    first, dot, rest = name.partition(".")
    below = claims.get(first)
    return _find_claim(below, rest) if dot and isinstance(below, Mapping) else None


def _split_words(value: object) -> Iterator[str]:
    """Yield the words of a claim, which is a text or a list of texts."""
    if isinstance(value, str):
        yield from value.split()
    elif isinstance(value, list):
        yield from (item for item in value if isinstance(item, str))


def _read_label(claims: Mapping[str, Any], name: str) -> str:
    """Return the name that a claim holds. Raises GatewayError (invalid_token)."""
    try:
        label = parse_shown_name(_find_claim(claims, name))
    except ValueError:
        label = ""
    if not label.isprintable() or remove_invisible(label) != label or not label:
        raise _build_invalid_error(f"its claim {name!r} is not a name of 1 to 128 visible characters")
    return label


def _build_token_error() -> GatewayError:
    return GatewayError(
        "invalid_api_key", "This is neither a gateway key nor a token of the issuer: check it, or get a new one."
    )


def _build_invalid_error(reason: str) -> GatewayError:
    return GatewayError("invalid_token", f"The access token is not valid here: {reason}.")
