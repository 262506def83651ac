"""Links with which the reader of a notice decides on one call, without a key: signed, of that call, until it expires.

1. A link names the approval, its tenant, the hash of its call, the name under which its decision is on record, and its
   end. The same notice always has the same link.
2. Its key is derived from a secret of the store and from the webhook's name and secret. So all workers agree, also
   after a restart, and another secret of the webhook ends all links that it got.
3. A link is a credential: no log line, no metric and no Referer of the gateway has it.
"""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from itsdangerous import BadData, URLSafeSerializer

from gateway.config.schema.approvals import Notify
from gateway.contracts.storage.store import Json, Store

#: The secret of the store.
SECRET: Final = "links"  # noqa: S105 - its name
SALT: Final = "twolane approval link"
#: The page below the console, and the field that carries the link. A query is in none of our log lines.
PAGE, FIELD = "/link", "token"
#: A longer text is not a link.
LONGEST: Final = 2048


@dataclass(frozen=True, slots=True)
class LinkPayload:
    """The facts of a link: the call that it decides on, the name on record, and its end (Unix time)."""

    approval_id: str
    tenant: str
    sha256: str
    name: str
    ends_s: float


class Links:
    """The links of one store. `notify` returns the webhooks in use. Await `prepare` before all other methods."""

    def __init__(self, store: Store, notify: Callable[[], Sequence[Notify]]) -> None:
        self._store = store
        self._notify = notify
        self._secret = b""

    async def prepare(self) -> None:
        """Read the secret of the store. Raises StoreError."""
        self._secret = self._secret or await self._store.get_or_create_secret(SECRET)

    def build_address(self, console_url: str, entry: Notify, view: Json, *, tenant: str) -> str | None:
        """Return the link to an approval, as `build_approval_view` shows it, for a webhook; None: that gets none."""
        if entry.links is None:
            return None
        facts = [view["id"], tenant, view["sha256"], entry.links.as_, view["expires_at"]]
        return f"{console_url}{PAGE}?{FIELD}={self._sign_facts(entry, facts)}"

    def verify_link(self, text: str) -> LinkPayload | None:
        """Return the facts of a link; None: it is not of a webhook in use, or was changed."""
        if not 0 < len(text) <= LONGEST or not text.isascii():
            return None
        for entry in self._notify():
            if entry.links is None:
                continue
            try:
                facts = self._build_signer(entry).loads(text)
            except BadData:
                continue
            if text == self._sign_facts(entry, facts):  # base64 has several spellings
                return LinkPayload(*facts)
        return None

    def build_form_token(self, text: str, *, shown_s: int) -> str:
        """Return the token of the page that showed the call of a link at this time (Unix)."""
        return f"{shown_s}." + hmac.new(self._secret, f"form {shown_s} {text}".encode(), hashlib.sha256).hexdigest()

    def _sign_facts(self, entry: Notify, facts: Sequence[object]) -> str:
        return str(self._build_signer(entry).dumps(facts))

    def _build_signer(self, entry: Notify) -> URLSafeSerializer:
        assert entry.links is not None
        own = "" if entry.secret is None else entry.secret.reveal()
        named = f"{entry.links.as_}\0{own}".encode("utf-8", "surrogateescape")
        key = hmac.digest(self._secret, named, hashlib.sha256)
        return URLSafeSerializer(key, salt=SALT, signer_kwargs={"digest_method": hashlib.sha256})
