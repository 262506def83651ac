"""The seal of compaction items: a client that returns one can change nothing in it, and uses it in its tenant only."""

from dataclasses import dataclass
from typing import Final

from itsdangerous import BadData, URLSafeSerializer

from gateway.contracts.storage.store import Store

NAME: Final = "compaction"  # of the secret


@dataclass(frozen=True, slots=True)
class Seal:
    """The seal of one tenant."""

    secret: bytes
    tenant: str

    def seal_summary(self, summary: str) -> str:
        """Return the text of a compaction item."""
        text = self._build_serializer().dumps(summary)
        return text if isinstance(text, str) else text.decode()

    def unseal_summary(self, text: str) -> str:
        """Return the summary of a compaction item. Raises ValueError: it is not one of this gateway and tenant."""
        try:
            summary = self._build_serializer().loads(text)
        except BadData as error:
            raise ValueError(str(error)) from None
        if not isinstance(summary, str):
            raise ValueError("it is no summary")
        return summary

    def _build_serializer(self) -> URLSafeSerializer:
        return URLSafeSerializer(self.secret, salt=self.tenant)


@dataclass(slots=True)
class SealFactory:
    """The seals of one store. Its secret never changes, and is read once."""

    store: Store
    _secret: bytes | None = None

    async def get_seal(self, tenant: str) -> Seal:
        """Return the seal of a tenant. Raises StoreError."""
        if self._secret is None:
            self._secret = await self.store.get_or_create_secret(NAME)
        return Seal(self._secret, tenant)
