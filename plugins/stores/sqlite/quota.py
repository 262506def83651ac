"""The shares of limits in the SQLite store: the method of `QuotaStore`, as one transaction of the writing thread."""

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Final

from gateway.plugin import QUOTA_GONE_S, ConflictError, QuotaAnswer, ShareGrant, ShareRequest

from .connection_thread import SqliteWork

#: The rows of a gateway that was silent for so long are deleted. No share counts for longer.
FORGOTTEN_S: Final = 300.0

_TURN: Final = "SELECT turn FROM quota_gateways WHERE gateway = ?"
_LATEST: Final = "SELECT max(seen_s) FROM quota_gateways"
#: After a time without any call, no gateway is gone: the store itself may have been away.
_EXCUSE: Final = "UPDATE quota_gateways SET alive_s = max(alive_s, ?)"
_SEE: Final = "INSERT OR REPLACE INTO quota_gateways (gateway, turn, seen_s, alive_s) VALUES (?, ?, ?, ?)"
_FORGET_SHARES: Final = """DELETE FROM quota_shares
    WHERE gateway IN (SELECT gateway FROM quota_gateways WHERE seen_s < ?)"""
_FORGET: Final = "DELETE FROM quota_gateways WHERE seen_s < ?"
_OTHERS: Final = f"""SELECT coalesce(sum(share), 0), coalesce(sum(used), 0), coalesce(max(base), 0)
    FROM quota_shares JOIN quota_gateways USING (gateway) WHERE name = ?1 AND gateway <> ?2
    AND CASE WHEN lapse_s = 0 THEN alive_s ELSE seen_s + {QUOTA_GONE_S} + lapse_s END >= ?3"""  # noqa: S608 - a constant
_PUT: Final = """INSERT OR REPLACE INTO quota_shares (name, gateway, share, used, needed, base, lapse_s)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_DROP: Final = "DELETE FROM quota_shares WHERE name = ? AND gateway = ?"
_COUNT: Final = "SELECT count(*) FROM quota_gateways WHERE alive_s >= ?"
#: In this order: a gateway that lacks some is rare.
_LACKING: Final = """SELECT DISTINCT other.name FROM quota_shares other INDEXED BY quota_lacking
    CROSS JOIN quota_shares own ON own.name = other.name AND own.gateway = ?1
    CROSS JOIN quota_gateways asking ON asking.gateway = other.gateway
    WHERE other.needed > other.share AND other.gateway <> ?1 AND asking.alive_s >= ?2"""


class SqliteQuota(SqliteWork):
    """The part of a store for shares of limits."""

    async def share_quota(
        self, gateway: str, requests: Sequence[ShareRequest], *, turn: int, now_s: float
    ) -> QuotaAnswer:
        return await self._write(partial(share_quota, gateway=gateway, requests=requests, turn=turn, now_s=now_s))


def share_quota(
    connection: sqlite3.Connection, *, gateway: str, requests: Sequence[ShareRequest], turn: int, now_s: float
) -> QuotaAnswer:
    """See `QuotaStore.share_quota`."""
    known = connection.execute(_TURN, (gateway,)).fetchone()
    if known is not None and known[0] >= turn:
        raise ConflictError("this call about shares of limits comes after a later one")
    (latest,) = connection.execute(_LATEST).fetchone()
    if latest is not None and now_s - latest > QUOTA_GONE_S / 2:
        connection.execute(_EXCUSE, (now_s + QUOTA_GONE_S,))
        connection.execute(_FORGET_SHARES, (now_s - FORGOTTEN_S,))
        connection.execute(_FORGET, (now_s - FORGOTTEN_S,))
    connection.execute(_SEE, (gateway, turn, now_s, now_s + QUOTA_GONE_S))
    grants = [_grant_share(connection, gateway, one, now_s) for one in requests]
    (gateways,) = connection.execute(_COUNT, (now_s,)).fetchone()
    lacking = [name for (name,) in connection.execute(_LACKING, (gateway, now_s)).fetchall()]
    return QuotaAnswer(grants=grants, gateways=gateways, lacking=lacking)


def _grant_share(connection: sqlite3.Connection, gateway: str, one: ShareRequest, now_s: float) -> ShareGrant:
    shares, used, base = connection.execute(_OTHERS, (one.name, gateway, now_s)).fetchone()
    room = one.limit - max(one.base, base) - shares
    share = max(one.held, min(one.wanted, room))
    if share or one.needed or one.base:
        row = (one.name, gateway, share, one.used, one.needed, one.base, one.lapse_s)
        connection.execute(_PUT, row)
    else:
        connection.execute(_DROP, (one.name, gateway))
    return ShareGrant(name=one.name, share=share, free=room - share, used=used, spare=shares - used)
