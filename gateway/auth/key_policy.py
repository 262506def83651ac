"""The terms of a key: as a request or the store has them, as a caller; and what one key may give another."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from pydantic import ValidationError

from gateway.auth.keyring import Key
from gateway.config.messages import describe_error
from gateway.config.schema.keys import KeyTerms
from gateway.contracts.caller import Caller, KeyBounds, Network
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.keys import StoredKey
from gateway.contracts.storage.store import Json

_CODES = {"extra_forbidden": "unknown_field", "missing": "missing_field"}
_GLOB = frozenset("*?[")


def build_caller(terms: KeyTerms) -> Caller:
    """Return the caller that a key stands for."""
    bounds = KeyBounds(
        expires_s=None if terms.expires is None else terms.expires.timestamp(),
        models=terms.models,
        tools=terms.tools,
        upstreams=terms.upstreams,
        networks=terms.networks,
        limits=None if terms.limits is None else terms.limits.allowance,
    )
    return Caller(terms.name, terms.tenant_name, frozenset(terms.scopes), bounds, terms.approvals)


def parse_terms(body: Json) -> KeyTerms:
    """Return the terms that a request wants, in the words of the configuration.

    Raises GatewayError (unknown_field, missing_field, invalid_field), which names the first field at fault.
    """
    try:
        terms = KeyTerms.model_validate(body)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
    else:
        if not terms.scopes:
            raise GatewayError("invalid_field", "Without a scope the key may do nothing: give one.", param="scopes")
        return terms
    path = tuple(part for part in details["loc"] if part != "[key]")
    text = describe_error(details, path, root=KeyTerms)
    raise GatewayError(
        _CODES.get(details["type"], "invalid_field"), f"{text[0].upper()}{text[1:]}.", param=_format_path(path)
    )


def parse_stored_terms(key: StoredKey) -> KeyTerms:
    """Return the terms of a stored key. Raises ValidationError for terms that this version does not understand."""
    terms = KeyTerms.model_validate_json(key.terms)
    expires = None if key.expires_s is None else datetime.fromtimestamp(key.expires_s, UTC)
    return terms.model_copy(update={"name": key.name, "tenant": key.tenant, "expires": expires})


def serialize_terms(terms: KeyTerms) -> str:
    """Return terms as they are stored: without their end, which has its own column."""
    return terms.model_dump_json(exclude={"expires"}, exclude_defaults=True)


def build_key(key: StoredKey) -> Key:
    """Return a stored key as requests are checked by it. Raises ValidationError."""
    caller = build_caller(parse_stored_terms(key))
    return Key(bytes.fromhex(key.sha256), replace(caller, bounds=replace(caller.bounds, expires_s=key.expires_s)))


@dataclass(frozen=True, slots=True)
class TooWide:
    """The field in which a key would allow more than the key that makes it, and what to do."""

    field: str
    message: str


def find_too_wide_field(caller: Caller, *, maker: Caller) -> TooWide | None:
    """Return the field in which a key would allow more than its maker's; None: there is none."""
    own, given = maker.bounds, caller.bounds
    if caller.tenant != maker.tenant:
        return TooWide("tenant", f"Your key makes keys of its own tenant {maker.tenant!r} only: leave 'tenant' out.")
    if missing := sorted(caller.scopes - maker.scopes):
        return TooWide("scopes", f"Your key lacks {', '.join(map(repr, missing))} itself: leave it out.")
    lists = (("models", given.models, own.models), ("tools", given.tools, own.tools))
    for field, patterns, allowed in lists:
        if allowed and not (patterns and all(_is_covered(pattern, allowed) for pattern in patterns)):
            return _build_too_wide(field, allowed)
    if own.upstreams and not (given.upstreams and set(given.upstreams) <= set(own.upstreams)):
        return _build_too_wide("upstreams", own.upstreams)
    if own.networks and not (
        given.networks and all(_is_network_covered(network, own.networks) for network in given.networks)
    ):
        return _build_too_wide("networks", [str(network) for network in own.networks])
    if own.expires_s is not None and (given.expires_s is None or given.expires_s > own.expires_s):
        return TooWide("expires", "Your key ends before that: send a time that is not later than the end of your key.")
    if own.limits is not None and (figure := own.limits.find_excess(given.limits)) is not None:
        return TooWide("limits", f"Your key is limited by {figure!r} itself: send a figure that is not larger.")
    if maker.approvals == "reject" and caller.approvals != "reject":
        return TooWide("approvals", "Your key rejects calls without a question: send 'reject'.")
    return None


def _is_covered(pattern: str, allowed: Sequence[str]) -> bool:
    """Return whether all that a pattern matches is allowed, as far as that is known without a list of names."""
    return pattern in allowed or (_GLOB.isdisjoint(pattern) and any(fnmatchcase(pattern, each) for each in allowed))


def _is_network_covered(network: Network, allowed: Sequence[Network]) -> bool:
    """Return whether a network lies within one of the allowed networks."""
    return any(
        network.version == each.version
        and each.network_address <= network.network_address  # type: ignore[operator]  # of one version
        and network.broadcast_address <= each.broadcast_address  # type: ignore[operator]
        for each in allowed
    )


def _build_too_wide(field: str, allowed: Sequence[str]) -> TooWide:
    return TooWide(field, f"Your key is bound to {', '.join(map(repr, allowed))} itself: send some of these.")


def _format_path(path: Sequence[str | int]) -> str:
    return ".".join(map(str, path))[:100]
