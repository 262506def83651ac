"""Remembered decisions, and conversations that ask before every call, in PostgreSQL."""

# ruff: noqa: S608 - what is put together here are constants of this file, and names of columns

from collections.abc import Sequence
from typing import Final

from gateway.plugin import AskBefore, AuditLine, Grant

from .approvals import GRANTS
from .base import PostgresqlBase, list_json, to_json
from .rows import PostgresqlRows
from .runs import AUDIT

_ASKS = PostgresqlRows(AskBefore)

_GRANTS: Final = f"SELECT {GRANTS.list_columns('g')} FROM twolane.grants g WHERE g.tenant = $1"
_GRANT_BY_ID: Final = f"{_GRANTS} AND g.id = $2"
_VALID_GRANTS: Final = f"{_GRANTS} AND coalesce(g.expires_s > $2, true)"
_GRANTS_ORDER: Final = "ORDER BY g.created_s, g.number LIMIT $3"
_GRANTS_PAGE: Final = f"{_VALID_GRANTS} {_GRANTS_ORDER}"
_GRANTS_BEHIND: Final = f"""{_VALID_GRANTS} AND (g.created_s, g.number) > (SELECT b.created_s, b.number
    FROM twolane.grants b WHERE b.tenant = $1 AND b.id = $4) {_GRANTS_ORDER}"""
#: A grant for a run is not one for its conversation. One for a conversation is its end user's.
_ONE_GRANT: Final = f"""{_VALID_GRANTS} AND g.caller = $3 AND g.sha256 = $4 AND (g.run_id = $5
    OR (g.run_id IS NULL AND g.conversation = $6 AND g."user" IS NOT DISTINCT FROM $7))
    ORDER BY g.created_s DESC, g.number DESC LIMIT 1"""
_ALL_ASKS: Final = f"SELECT {_ASKS.list_columns('k')} FROM twolane.asks k WHERE k.tenant = $1"
_ASK_BY_ID: Final = f"{_ALL_ASKS} AND k.id = $2"
_ASKS_ORDER: Final = "ORDER BY k.created_s, k.caller, k.conversation, k.id LIMIT $3"
_ASKS_PAGE: Final = f"{_ALL_ASKS} AND k.expires_s > $2 {_ASKS_ORDER}"
_ASKS_BEHIND: Final = f"""{_ALL_ASKS} AND k.expires_s > $2 AND (k.created_s, k.caller, k.conversation, k.id) >
    (SELECT b.created_s, b.caller, b.conversation, b.id FROM twolane.asks b WHERE b.tenant = $1 AND b.id = $4)
    {_ASKS_ORDER}"""


class PostgresqlGrants(PostgresqlBase):
    """The methods of the store for grants and asks."""

    async def list_grants(self, *, tenant: str, now_s: float, after: str | None = None, limit: int) -> Sequence[Grant]:
        if after is None:
            return await self._fetch_all(GRANTS, _GRANTS_PAGE, tenant, now_s, limit)
        return await self._fetch_all(GRANTS, _GRANTS_BEHIND, tenant, now_s, limit, after)

    async def grant(
        self,
        *,
        tenant: str,
        caller: str,
        user: str | None,
        run_id: str,
        conversation: str | None,
        sha256: str,
        now_s: float,
    ) -> Grant | None:
        which = (tenant, now_s, caller, sha256, run_id, conversation, user)
        return await self._fetch_first(GRANTS, _ONE_GRANT, *which)

    async def grant_by_id(self, grant_id: str, *, tenant: str) -> Grant | None:
        return await self._fetch_first(GRANTS, _GRANT_BY_ID, tenant, grant_id)

    async def delete_grant(self, grant_id: str, *, tenant: str, audit: Sequence[AuditLine]) -> bool:
        return bool(await self._call_value("delete_grant", tenant, grant_id, list_json(AUDIT, audit)))

    async def put_ask(self, ask: AskBefore) -> None:
        await self._call("put_ask", to_json(_ASKS.to_json(ask)))

    async def list_asks(
        self, *, tenant: str, now_s: float, after: str | None = None, limit: int
    ) -> Sequence[AskBefore]:
        if after is None:
            return await self._fetch_all(_ASKS, _ASKS_PAGE, tenant, now_s, limit)
        return await self._fetch_all(_ASKS, _ASKS_BEHIND, tenant, now_s, limit, after)

    async def ask_by_id(self, ask_id: str, *, tenant: str) -> AskBefore | None:
        return await self._fetch_first(_ASKS, _ASK_BY_ID, tenant, ask_id)

    async def delete_ask(self, ask: AskBefore, *, audit: Sequence[AuditLine]) -> bool:
        return bool(await self._call_value("delete_ask", ask.tenant, ask.id, list_json(AUDIT, audit)))
