"""A key as its operator sees it, in the words of the configuration. Import this module only where keys are shown."""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec.structs import asdict

from gateway.auth.key_policy import parse_stored_terms
from gateway.config.schema.keys import KeyTerms, Scope
from gateway.config.values.scalars import ApprovalMode
from gateway.contracts.storage.keys import StoredKey
from gateway.contracts.storage.store import Json
from gateway.contracts.views import UnixTime, View


class KeyView(View, frozen=True, kw_only=True):
    """A key and what it may do. One of the configuration has its name as its id, and no facts of its making."""

    id: str
    object: Literal["key"] = "key"
    name: str
    scopes: Sequence[Scope]
    tenant: str
    expires: str | None
    approvals: ApprovalMode | None
    models: Sequence[str]
    tools: Sequence[str]
    upstreams: Sequence[str]
    networks: Sequence[str]
    limits: Json | None
    metadata: Mapping[str, str]
    state: Literal["valid", "expired", "revoked"]
    origin: Literal["store", "configuration"]
    hint: str | None = None
    created_at: UnixTime | None = None
    created_by: str | None = None
    revoked_at: UnixTime | None = None
    revoked_by: str | None = None
    rotated_from: str | None = None
    used_at: UnixTime | None = None


class NewKeyView(KeyView, frozen=True, kw_only=True):
    """A key that was made now, with its text, which is shown this once."""

    key: str


def build_key_view(key: StoredKey, *, now_s: float) -> KeyView:
    """Return a key that was made at run time, as the API shows it at this time (Unix)."""
    return KeyView(
        id=key.id,
        **_dump_terms(parse_stored_terms(key)),
        state="revoked" if key.revoked_s is not None else "expired" if key.has_ended(now_s) else "valid",
        origin="store",
        hint=f"sk-...{key.hint}",
        created_at=key.created_s,
        created_by=key.created_by,
        revoked_at=key.revoked_s,
        revoked_by=key.revoked_by,
        rotated_from=key.rotated_from,
        used_at=key.used_s,
    )


def build_new_key_view(key: StoredKey, text: str, *, now_s: float) -> NewKeyView:
    return NewKeyView(**asdict(build_key_view(key, now_s=now_s)), key=text)


def build_configured_key_view(key: KeyTerms, *, now_s: float) -> KeyView:
    """Return a key of the configuration."""
    has_ended = key.expires is not None and key.expires.timestamp() <= now_s
    return KeyView(id=key.name, **_dump_terms(key), state="expired" if has_ended else "valid", origin="configuration")


def _dump_terms(terms: KeyTerms) -> Json:
    """Return the terms of a key in the words of the configuration, as JSON."""
    view: Json = terms.model_dump(mode="json", include=set(KeyTerms.model_fields))
    return {**view, "tenant": terms.tenant_name}
