"""The making of keys: created, rotated and revoked in the store, each with a line in the audit log.

1. The text of a key is returned once, to its maker. The gateway does not keep it.
2. No key allows more than the one that makes it, and none of another tenant is made. An operator who works on the store
   itself, on the gateway's machine, is bound by neither.
3. A key is a new one after its rotation, with a new id. Both share the name, to which memories and runs belong.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from gateway.auth.key_policy import build_caller, find_too_wide_field, parse_stored_terms, serialize_terms
from gateway.config import Settings
from gateway.config.schema.approvals import LINK_PREFIX
from gateway.config.schema.keys import KeyTerms
from gateway.config.schema.serve_oauth import CALLER_PREFIX
from gateway.contracts.allowance import BUDGETS, Allowance
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.journal import AuditLine, Via
from gateway.contracts.storage.keys import KeyStore, StoredKey
from gateway.features.usage.section import UsageSettings
from gateway.text.names import find_imitated_name

log = logging.getLogger("gateway")

#: Keys that are valid at a time, of all tenants.
MOST: Final = 10_000
#: The author of keys that were made on the store itself.
ON_THE_STORE: Final = "command line"
_HINT_CHARS: Final = 4
_KINDS: Final = {"name": "key", "tenant": "tenant"}


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A key that was made, with its text, which is shown only this once."""

    key: StoredKey
    text: str


class KeyIssuer:
    """The maker of keys of one store. `settings` returns the ones in use.

    The methods raise GatewayError and StoreError. `by` is the caller that requests it; None: an operator works on the
    store itself.
    """

    def __init__(self, store: KeyStore, *, settings: Callable[[], Settings], clock: Clock) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock

    async def create(self, terms: KeyTerms, *, by: Caller | None, via: Via) -> IssuedKey:
        """Make a key, of the tenant of `by` unless the terms name one."""
        self._check_enabled()
        if by is not None and terms.tenant is None:
            terms = terms.model_copy(update={"tenant": by.tenant})
        self._check_terms(terms, by)
        await self._check_names(terms)
        issued = self._make_key(terms, by)
        added = await self._store.add_key(
            issued.key, most=MOST, audit=[self._build_audit_line(issued.key, "created", by, via)]
        )
        if added == "name_taken":
            raise _build_exists_error(terms.name)
        if added == "full":
            raise GatewayError("too_many_keys", f"There are {MOST} keys already: revoke unused ones.")
        self._log_change(issued.key, "created", by)
        return issued

    async def rotate(
        self, key_id: str, *, tenant: str, grace_s: float | None, by: Caller | None, via: Via
    ) -> IssuedKey:
        """Make a key with the terms of another one, which stays valid for `grace_s` seconds; None: as configured."""
        self._check_enabled()
        old = await self.get_key(key_id, tenant=tenant)
        issued = self._make_key(terms := parse_stored_terms(old), by)
        self._check_width(terms, by)
        until_s = issued.key.created_s + (self._settings().runtime_keys.grace if grace_s is None else grace_s)
        new = replace(issued.key, rotated_from=old.id)
        audit = [self._build_audit_line(new, "rotated", by, via)]
        if not await self._store.rotate_key(new, until_s=until_s, audit=audit):
            raise GatewayError(
                "key_ended", "The key is not valid any more, or was rotated before: rotate the newest one of its name."
            )
        self._log_change(new, "rotated", by)
        return IssuedKey(new, issued.text)

    async def revoke(self, key_id: str, *, tenant: str, by: Caller | None, via: Via) -> StoredKey:
        """Revoke a key, which is invalid from then on. Return it as it was before."""
        key = await self.get_key(key_id, tenant=tenant)
        author, now_s = _get_author_name(by), self._clock.time()
        audit = [self._build_audit_line(key, "revoked", by, via)]
        if not await self._store.revoke_key(key_id, tenant=tenant, by=author, now_s=now_s, audit=audit):
            raise GatewayError("key_ended", "The key is not valid any more: there is nothing to revoke.")
        self._log_change(key, "revoked", by)
        return key

    async def get_key(self, key_id: str, *, tenant: str) -> StoredKey:
        """Return a key of a tenant. Raises GatewayError (key_not_found) where it has none with this id."""
        key = await self._store.get_key(key_id, tenant=tenant)
        if key is None:
            raise GatewayError(
                "key_not_found", "The gateway has no key with this id: GET /context/keys lists all keys."
            )
        return key

    def _check_enabled(self) -> None:
        if not self._settings().runtime_keys.enabled:
            raise GatewayError(
                "runtime_keys_off",
                "This gateway takes the keys of its configuration only: set 'runtime_keys: {enabled: true}' there.",
            )

    def _check_terms(self, terms: KeyTerms, by: Caller | None) -> None:
        """Raise GatewayError for a name, an upstream, an end, limits or rights that a key may not have."""
        settings = self._settings()
        if any(key.name == terms.name for key in settings.keys):
            raise _build_exists_error(terms.name)
        oauth = settings.mcp.serve is not None and settings.mcp.serve.oauth is not None
        if oauth and terms.name.startswith(CALLER_PREFIX):
            text = f"Callers with a token have such names: choose one without {CALLER_PREFIX!r}."
            raise GatewayError("invalid_field", text, param="name")
        if terms.name.startswith(LINK_PREFIX):
            text = f"Links to approvals have such names: choose one without {LINK_PREFIX!r}."
            raise GatewayError("invalid_field", text, param="name")
        declared = [upstream.name for upstream in settings.upstreams]
        if unknown := [name for name in terms.upstreams if name not in declared]:
            known = ", ".join(map(repr, declared)) or "none"
            text = f"No upstream {unknown[0]!r} is declared: use one of those that are ({known})."
            raise GatewayError("invalid_field", text, param="upstreams")
        if terms.expires is not None and terms.expires.timestamp() <= self._clock.time():
            raise GatewayError("invalid_field", "This time is over: send one to come.", param="expires")
        if terms.limits is not None:
            _check_budgets(terms.limits.allowance, settings.usage)
        self._check_width(terms, by)

    async def _check_names(self, terms: KeyTerms) -> None:
        """Raise GatewayError (invalid_field) for the name of a key or tenant that looks like another one's.

        The error does not show the other name: it may belong to another tenant.
        """
        now_s, settings = self._clock.time(), self._settings()
        stored = [key for key in await self._store.list_keys_in_use() if not key.has_ended(now_s)]
        others = {
            "name": (*(key.name for key in settings.keys), *(key.name for key in stored)),
            "tenant": (*(key.tenant_name for key in settings.keys), *(key.tenant for key in stored)),
        }
        for field, name in (("name", terms.name), ("tenant", terms.tenant_name)):
            if find_imitated_name(name, others[field]) is not None:
                text = f"The name {name!a} looks like that of another {_KINDS[field]}: choose one that differs more."
                raise GatewayError("invalid_field", text, param=field)

    def _check_width(self, terms: KeyTerms, by: Caller | None) -> None:
        """Raise GatewayError (key_too_wide) for rights that the maker's own key does not have."""
        if by is not None and (wide := find_too_wide_field(build_caller(terms), maker=by)) is not None:
            raise GatewayError("key_too_wide", wide.message, param=wide.field)

    def _make_key(self, terms: KeyTerms, by: Caller | None) -> IssuedKey:
        """Return a new key with a random text; the store gets only the hash of the text."""
        text = f"sk-{secrets.token_hex(24)}"
        key = StoredKey(
            id=f"key_{secrets.token_hex(12)}",
            tenant=terms.tenant_name,
            name=terms.name,
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            hint=text[-_HINT_CHARS:],
            terms=serialize_terms(terms),
            created_s=self._clock.time(),
            created_by=_get_author_name(by),
            expires_s=None if terms.expires is None else terms.expires.timestamp(),
        )
        return IssuedKey(key, text)

    def _build_audit_line(self, key: StoredKey, what: str, by: Caller | None, via: Via) -> AuditLine:
        """Return the line of the audit log for a change of a key."""
        return AuditLine(
            tenant=key.tenant,
            caller=key.name,
            event=f"key_{what}",
            decision=what,
            rule=key.id,
            by=_get_author_name(by),
            via=via,
            created_s=self._clock.time(),
        )

    def _log_change(self, key: StoredKey, what: str, by: Caller | None) -> None:
        log.info(
            "the key %r (%s) of the tenant %r was %s by %r", key.name, key.id, key.tenant, what, _get_author_name(by)
        )


def _check_budgets(limits: Allowance, usage: UsageSettings) -> None:
    """Raise GatewayError (invalid_field) if a budget could not be counted."""
    for figure in BUDGETS:
        if getattr(limits, figure) is None:
            continue
        setting = None if usage.enabled else "usage.enabled"
        if figure.startswith("cost_"):
            setting = setting or (None if usage.prices else "usage.prices")
        if setting is not None:
            raise GatewayError(
                "invalid_field",
                f"This gateway cannot count it without {setting!r}: have its operator set that, or leave it out.",
                param=f"limits.{figure}",
            )


def _get_author_name(by: Caller | None) -> str:
    return ON_THE_STORE if by is None else by.name


def _build_exists_error(name: str) -> GatewayError:
    return GatewayError("key_exists", f"There is a key {name!r} already: choose another name.", param="name")
