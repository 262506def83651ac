"""Events and the audit log in PostgreSQL: numbers are given behind the write (sql/events.sql, sql/audit.sql)."""

# ruff: noqa: S608 - what is put together here are constants of this file, and names of columns

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from gateway.plugin import AuditRow, RunEvent, StoreError, link

from .base import PostgresqlBase
from .runs import AUDIT, EVENTS
from .text_codec import restore_text

log = logging.getLogger("gateway")

_EVENTS: Final = f"SELECT {EVENTS.list_columns()} FROM twolane.read_events($1, $2, $3, $4)"
_LINES: Final = f"""SELECT seq, hash, {AUDIT.list_columns()} FROM twolane.audit WHERE seq > $1 ORDER BY seq LIMIT $2"""
_UNSEALED: Final = f"""SELECT s.seq, s.hash, u.* FROM twolane.seals s LEFT JOIN LATERAL (
    SELECT id, {AUDIT.list_columns()} FROM twolane.audit WHERE seq IS NULL ORDER BY id LIMIT $1) u ON true
    WHERE s.name = 'audit' ORDER BY u.id"""
_SEAL: Final = "SELECT twolane.seal_audit($1, $2, $3)"
#: Lines that are sealed at once; how often a process seals what there is.
SEALED_AT_ONCE, SEAL_S = 500, 1.0


class PostgresqlRecords(PostgresqlBase):
    """The methods of the store for events and audit lines."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self._sealing: asyncio.Task[None] | None = None

    async def list_events(
        self, *, after: int, tenant: str | None = None, run_id: str | None = None, limit: int
    ) -> Sequence[RunEvent]:
        return await self._fetch_all(EVENTS, _EVENTS, after, tenant, run_id, limit)

    async def get_last_event(self) -> int:
        ((seq,),) = await self._read("SELECT twolane.last_event()")
        return int(seq)

    async def audit(self, *, after: int, limit: int) -> Sequence[AuditRow]:
        while await self._seal_audit_lines():
            pass
        rows = await self._read(_LINES, after, limit)
        return [AuditRow(seq, AUDIT.from_row(line), digest) for seq, digest, *line in rows]

    async def _seal_audit_lines(self) -> bool:
        """Give numbers and hashes to up to `SEALED_AT_ONCE` lines. Return whether there may be more."""
        rows = await self._read(_UNSEALED, SEALED_AT_ONCE)
        seq, previous_hash, ids, hashes = rows[0][0], rows[0][1], [], []
        for _, _, line_id, *values in rows:
            if line_id is not None:
                line = {
                    name: restore_text(value) if isinstance(value, str) else value
                    for name, value in zip(AUDIT.names, values, strict=True)
                }
                previous_hash = link(previous_hash, line)
                ids.append(line_id)
                hashes.append(previous_hash)
        if not ids:
            return False
        # False: another process has sealed them meanwhile, or some of them.
        ((is_sealed,),) = await self._read(_SEAL, seq, ids, hashes)
        return not is_sealed or len(ids) == SEALED_AT_ONCE

    def open_records(self) -> None:
        """Seal audit lines in the background from now on."""
        self._sealing = asyncio.create_task(self._seal_often())

    async def close_records(self) -> None:
        if self._sealing is not None:
            self._sealing.cancel()
            await asyncio.wait([self._sealing])
        self._sealing = None

    async def _seal_often(self) -> None:
        while True:
            await asyncio.sleep(SEAL_S)
            try:
                while await self._seal_audit_lines():
                    pass
            except StoreError as error:
                log.warning("lines of the audit log are not numbered yet: %s", error)
