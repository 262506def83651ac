"""The seal of compaction items: whoever sends one back can change nothing in it, and uses it in its tenant only."""

from dataclasses import dataclass
from typing import Final

from itsdangerous import BadData, URLSafeSerializer

from gateway.contracts.store import Store

NAME: Final = "compaction"  # of the secret


@dataclass(frozen=True, slots=True)
class Seal:
    """The seal of one tenant."""

    serializer: URLSafeSerializer

    def sealed(self, summary: str) -> str:
        """Return the text of a compaction item."""
        text = self.serializer.dumps(summary)
        return text if isinstance(text, str) else text.decode()

    def opened(self, text: str) -> str:
        """Return the summary of a compaction item. Raises ValueError: it is not one of this gateway and tenant."""
        try:
            summary = self.serializer.loads(text)
        except BadData as error:
            raise ValueError(str(error)) from None
        if not isinstance(summary, str):
            raise ValueError("it is no summary")
        return summary


@dataclass(frozen=True, slots=True)
class Sealing:
    """The seals of one store."""

    store: Store

    async def of(self, tenant: str) -> Seal:
        """Return the seal of a tenant. Raises StoreError."""
        return Seal(URLSafeSerializer(await self.store.secret(NAME), salt=tenant))
