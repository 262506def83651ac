"""The page that checks the chain of hashes of the audit log: a few milliseconds of work at a time.

1. A worker remembers the last line that it verified, and the next request goes on behind it.
2. The furthest verified line is remembered as well: a log that ends before it, or has another one there, was changed.
3. A restart forgets both, so a hash that a person noted elsewhere is worth more: `gateway audit verify --expect`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

from aiohttp import web

from gateway.api.ops_pages import Route, build_readable_routes
from gateway.api.request import Authorise, parse_query, parse_query_choice
from gateway.api.views import build_json_answer
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.audit_chain import FIRST_HASH, verify
from gateway.contracts.storage.journal import AuditRow
from gateway.contracts.storage.store import Store
from gateway.contracts.views import View

VERIFICATION: Final = "/context/audit/verification"
#: One request works so long on it.
WORK_S: Final = 0.04
#: Lines between two breaks, in which other requests get their turn: 2 ms or so.
BATCH: Final = 200
#: Before the first line there is, also where another program wrote one with a negative number.
_START: Final = -(2**63)


@dataclass(frozen=True, slots=True)
class AuditPosition:
    """A verified line: its number and hash."""

    seq: int = 0
    hash: str = FIRST_HASH


class AuditVerificationView(View, frozen=True, kw_only=True):
    """The result of one piece of work. `verified` is true only once the whole log is, up to its end.

    `problem`: the first line that is not as it was written, null if none was found. `complete`: the end of the log, or
    a problem, was reached.
    """

    object: Literal["audit.verification"] = "audit.verification"
    verified: bool
    lines: int
    until_seq: int
    until_hash: str | None
    problem: str | None
    complete: bool


class AuditVerifier:
    """The verification of one worker."""

    def __init__(self, store: Store, *, clock: Clock, batch: int = BATCH, work_s: float = WORK_S) -> None:
        self._store = store
        self._clock = clock
        self._batch = batch
        self._work_s = work_s
        self._turn = asyncio.Lock()
        self._at = self._furthest = AuditPosition()

    async def verify_next(self, *, anew: bool = False) -> AuditVerificationView:
        """Verify lines for `work_s` seconds. `anew`: begin with the first line. Raises StoreError."""
        async with self._turn:
            until_s = self._clock.monotonic() + self._work_s
            if anew:
                self._at = AuditPosition()
            elif (problem := await self._find_position_problem(self._at)) is not None:
                return self._report(problem, complete=True)
            while True:
                rows = await self._store.audit(after=self._at.seq or _START, limit=self._batch)
                if not rows:
                    return self._report(self._cut_off(), complete=True)
                if (problem := self._find_rows_problem(rows)) is not None:
                    return self._report(problem, complete=True)
                self._at = AuditPosition(rows[-1].seq, rows[-1].hash)
                if self._at.seq > self._furthest.seq:
                    self._furthest = self._at
                if self._clock.monotonic() >= until_s:
                    rest = await self._store.audit(after=self._at.seq, limit=1)
                    problem = None if rest else self._cut_off()
                    return self._report(problem, complete=not rest)
                await asyncio.sleep(0)

    async def _find_position_problem(self, place: AuditPosition) -> str | None:
        """Return the problem of a verified line that is not in the log as it was; None: it is."""
        if not place.seq:
            return None
        row = next(iter(await self._store.audit(after=place.seq - 1, limit=1)), None)
        if row is None:
            return _describe_cut_off(place)
        return None if (row.seq, row.hash) == (place.seq, place.hash) else _describe_rewrite(place)

    def _find_rows_problem(self, rows: Sequence[AuditRow]) -> str | None:
        """Return the problem of the rows behind the last verified line; None: they go on from it."""
        lines = [(row.seq, asdict(row.line), row.hash) for row in rows]
        try:
            broken = verify(lines, seq=self._at.seq, previous_hash=self._at.hash)
        except (TypeError, ValueError):  # a value that the gateway never writes
            broken = self._find_first_unreadable(lines)
        if broken is not None:
            found = rows[broken - self._at.seq - 1].seq
            if found != broken:
                return f"The audit log has line {found} where line {broken} should be: lines were removed or inserted."
            return f"Line {broken} of the audit log is not as it was written."
        known = self._furthest
        if self._at.seq < known.seq <= rows[-1].seq and rows[known.seq - self._at.seq - 1].hash != known.hash:
            return _describe_rewrite(known)
        return None

    def _find_first_unreadable(self, lines: Sequence[tuple[int, Mapping[str, object], str]]) -> int:
        seq, previous = self._at.seq, self._at.hash
        for line in lines:
            try:
                if verify([line], seq=seq, previous_hash=previous) is not None:
                    break
            except (TypeError, ValueError):
                break
            seq, previous = line[0], line[2]
        return seq + 1

    def _report(self, problem: str | None, *, complete: bool) -> AuditVerificationView:
        return AuditVerificationView(
            verified=complete and problem is None,
            lines=self._at.seq,
            until_seq=self._at.seq,
            until_hash=self._at.hash if self._at.seq else None,
            problem=problem,
            complete=complete,
        )

    def _cut_off(self) -> str | None:
        """Return the problem of a log that ends with the last verified line; None: it may end there."""
        return None if self._at.seq >= self._furthest.seq else _describe_cut_off(self._furthest)


class AuditPages:
    """The page of one worker."""

    def __init__(self, verifier: AuditVerifier, *, authorise: Authorise) -> None:
        self._verifier = verifier
        self._authorise = authorise

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [*build_readable_routes(VERIFICATION, self._verify)]

    async def _verify(self, request: web.Request) -> web.Response:
        self._authorise(request, "admin")
        begin = parse_query_choice(parse_query(request, "from"), "from", ("start",))
        return build_json_answer(await self._verifier.verify_next(anew=begin is not None))


def _describe_cut_off(place: AuditPosition) -> str:
    return f"The audit log ends before line {place.seq}, which was verified before: its end was cut off."


def _describe_rewrite(place: AuditPosition) -> str:
    return f"Line {place.seq} of the audit log is not the one that was verified before: the log was written anew."
