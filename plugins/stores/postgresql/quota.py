"""The shares of limits in the PostgreSQL store (`sql/quota.sql`)."""

import json
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from gateway.plugin import QUOTA_GONE_S, QuotaAnswer, ShareGrant, ShareRequest

from .base import PostgresqlBase
from .rows import to_arrays

#: The rows of a gateway that was silent for so long are deleted. No share counts for longer.
FORGOTTEN_S: Final = 300.0
_FIELDS: Final = ("name", "limit", "base", "held", "used", "wanted", "needed", "lapse_s")
_get_values: Final = attrgetter(*_FIELDS)


class PostgresqlQuota(PostgresqlBase):
    """The part of a store for shares of limits."""

    async def share_quota(
        self, gateway: str, requests: Sequence[ShareRequest], *, turn: int, now_s: float
    ) -> QuotaAnswer:
        del now_s  # the clock of the server counts
        arrays = to_arrays(map(_get_values, requests), len(_FIELDS))
        answer = json.loads(await self._call_value("share_quota", gateway, turn, QUOTA_GONE_S, FORGOTTEN_S, *arrays))
        grants = [
            ShareGrant(name=request.name, share=share, free=free, used=used, spare=spare)
            for request, (share, free, used, spare) in zip(requests, answer["grants"], strict=True)
        ]
        return QuotaAnswer(grants=grants, gateways=answer["gateways"], lacking=answer["lacking"])
