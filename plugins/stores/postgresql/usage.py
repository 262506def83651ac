"""The usage in the PostgreSQL store (`sql/usage.sql`)."""

# ruff: noqa: S608 - what is put together here are constants of this file, and names of columns

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gateway.plugin import DIMENSIONS, MOST_USAGE, Dimension, StoredUsage

from .base import PostgresqlBase
from .rows import PostgresqlRows, to_arrays

USAGE = PostgresqlRows(StoredUsage)
_KEY: Final = (*DIMENSIONS, "currency")
_SUMS: Final = tuple(name for name in USAGE.names if name not in _KEY)
_TOTALS: Final = ", ".join(f"least(sum({name}), {MOST_USAGE})::bigint AS {name}" for name in _SUMS)
_CHANGES: Final = "SELECT day, changes FROM twolane.usage_days WHERE day >= $1 AND day <= $2"
#: Gateways at work stand among the duties, each under a unique name, which no process takes as a duty.
_GATEWAYS: Final = """SELECT count(*) FROM twolane.duties
    WHERE name >= 'gateway ' AND name < 'gateway!' AND until_s >= twolane.now_s()"""


class PostgresqlUsage(PostgresqlBase):
    """The part of a store for usage."""

    async def add_usage(self, usage: Sequence[StoredUsage], *, writer: str, number: int, now_s: float) -> None:
        added = to_arrays([USAGE.values(one) for one in usage], len(USAGE.names))
        await self._call("add_usage", writer, number, now_s, MOST_USAGE, *added)

    async def end_usage(self, writer: str) -> None:
        await self._call("end_usage", writer)

    async def forget_lost_usage(self, *, before_s: float) -> Sequence[float]:
        return [added_s for (added_s,) in await self._call("forget_lost_usage", before_s)]

    async def sum_usage(
        self,
        *,
        since: str,
        until: str,
        by: Sequence[Dimension],
        tenant: str | None,
        only: Collection[Sequence[str]] | None = None,
    ) -> Sequence[StoredUsage]:
        values = (since, until, tenant)
        if only is None:
            return await self._fetch_all(USAGE, _build_select(by), *values)
        wanted = sorted(set(map(tuple, only)))
        statement = _build_lookups(by, is_one_day=since == until)
        return await self._fetch_all(USAGE, statement, *values, *to_arrays(wanted, len(by))) if wanted else []

    async def list_usage_changes(self, *, since: str, until: str) -> Mapping[str, int]:
        return {str(day): int(changes) for day, changes in await self._read(_CHANGES, since, until)}

    async def announce_gateway(self, gateway: str, *, now_s: float, until_s: float) -> None:
        await self._call("attend", gateway, until_s - now_s)

    async def count_gateways(self, *, now_s: float) -> int:
        del now_s  # the clock of the server counts
        ((count,),) = await self._read(_GATEWAYS)
        return int(count)

    async def withdraw_gateway(self, gateway: str) -> None:
        await self._call("leave", gateway)

    async def prune_usage(self, *, before: str) -> int:
        return int(await self._call_value("prune_usage", before))


_WHERE: Final = "day >= $1 AND day <= $2 AND ($3::text IS NULL OR tenant = $3)"
#: For one day the key of the table is looked up as far as the wanted columns go.
_WHERE_ON_DAY: Final = f"day = $1 AND {_WHERE}"


def _build_select(by: Sequence[Dimension]) -> str:
    """Return the statement that sums the usage of days by some columns."""
    groups = [name for name in _KEY if name in by or name == "currency"]
    listed = ", ".join(groups)
    names = ", ".join(name if name in groups else f"'' AS {name}" for name in _KEY)
    return f"SELECT {names}, {_TOTALS} FROM twolane.usage WHERE {_WHERE} GROUP BY {listed} ORDER BY {listed}"


def _build_lookups(by: Sequence[Dimension], *, is_one_day: bool) -> str:
    """Return the statement that looks up the usage of days for each of the wanted values of some columns."""
    names = ", ".join(f"wanted.{name}" if name in by else f"found.{name}" for name in _KEY)
    listed = ", ".join(f"wanted.{name}" for name in _KEY if name in by)
    arrays = ", ".join(f"${number}::text[]" for number in range(4, 4 + len(by)))
    others = ", ".join(f"'' AS {name}" for name in DIMENSIONS if name not in by)
    conditions = "".join(f" AND usage.{name} = wanted.{name}" for name in by)
    sums = ", ".join(f"found.{name}" for name in _SUMS)
    where = _WHERE_ON_DAY if is_one_day else _WHERE
    return (
        f"SELECT {names}, {sums} FROM unnest({arrays}) AS wanted ({', '.join(by)}), LATERAL (SELECT {others}, "
        f"currency, {_TOTALS} FROM twolane.usage WHERE {where}{conditions} GROUP BY currency) AS found "
        f"ORDER BY {listed}, found.currency"
    )
