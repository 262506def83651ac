"""Approvals in PostgreSQL: their lists, and how they are decided; the functions stand in sql/approvals.sql."""

# ruff: noqa: S608 - what is put together here are constants of this file, and names of columns

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Unpack, cast

from gateway.plugin import (
    Approval,
    ApprovalGroup,
    ApprovalGrouping,
    ApprovalOrder,
    DecisionResult,
    DecisionWrite,
    Grant,
    NarrowedApprovals,
    NoteWrite,
    RunEvent,
)

from .base import PostgresqlBase, list_json, to_json
from .rows import PostgresqlRows
from .runs import APPROVALS, AUDIT, EVENTS

GRANTS = PostgresqlRows(Grant)
_GROUPS = PostgresqlRows(ApprovalGroup)

_APPROVALS: Final = f"SELECT {APPROVALS.list_columns('a')} FROM twolane.approvals a WHERE a.tenant = $1"
_ONE: Final = f"{_APPROVALS} AND a.id = $2"
_DECIDE: Final = f"SELECT d.result, {APPROVALS.list_columns('(d.approval)')} FROM twolane.decide($1, $2, $3, $4) d"
_NOTE: Final = f"""SELECT {APPROVALS.list_columns()}
    FROM twolane.note_approval($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"""
_EXPIRE: Final = f"SELECT {APPROVALS.list_columns()} FROM twolane.expire_approvals($1, $2, $3, $4)"
#: By order: the columns that it compares, and their direction; a further condition.
_ORDERS: Final[Mapping[ApprovalOrder, tuple[Sequence[str], str, str]]] = {
    "oldest": (("created_s", "number"), "ASC", ""),
    "newest": (("created_s", "number"), "DESC", ""),
    "urgency": (("expires_s", "created_s", "id"), "ASC", " AND a.state = 'pending'"),
}
_WAITING: Final = "coalesce({0}.edited, {0}.arguments)"
#: Each entry of `NarrowedApprovals` as a condition on a value; `text` is compared with a second value, as JSON has it.
_NARROWED: Final[Mapping[str, str]] = {
    **{
        name: f"a.{name} = {{0}}"
        for name in ("state", "conversation", "run_id", "sha256", "tool", "caller", "assigned")
    },
    "text": f"""(strpos(lower(concat_ws(' ', a.id, a.run_id, a.tool, a.caller, a."user", a.conversation) COLLATE "C"),
        {{0}}) > 0 OR strpos(lower({_WAITING.format("a")}), {{1}}) > 0)""",
    "equal_to": f"""(a.tool, {_WAITING.format("a")}) = (SELECT o.tool, {_WAITING.format("o")}
        FROM twolane.approvals o WHERE o.tenant = $1 AND o.id = {{0}})""",
    "since_s": "a.created_s >= {0}",
    "until_s": "a.created_s < {0}",
}
_GROUPED: Final[Mapping[ApprovalGrouping, str]] = {
    "tool": "a.tool",
    "caller": "a.caller",
    "call": f"a.tool, {_WAITING.format('a')}",
}
_GROUPS_OF: Final = f"""SELECT (array_agg(a.id ORDER BY a.expires_s, a.created_s, a.id))[1] AS first, count(*) AS count,
    count(DISTINCT a.tool || chr(10) || {_WAITING.format("a")}) AS calls, min(a.expires_s) AS next_s
    FROM twolane.approvals a WHERE a.state = 'pending' AND a.tenant = $1"""


class PostgresqlApprovals(PostgresqlBase):
    """The methods of the store for approvals."""

    async def get_approval(self, approval_id: str, *, tenant: str) -> Approval | None:
        return await self._fetch_first(APPROVALS, _ONE, tenant, approval_id)

    async def list_approvals(
        self,
        *,
        tenant: str,
        order: ApprovalOrder = "oldest",
        after: str | None = None,
        limit: int,
        **narrowed: Unpack[NarrowedApprovals],
    ) -> Sequence[Approval]:
        columns, direction, further = _ORDERS[order]
        values: list[object] = [tenant]
        conditions = further + _build_conditions(values, narrowed)
        if after is not None:
            values.append(after)
            key, than = ", ".join(columns), ">" if direction == "ASC" else "<"
            conditions += f""" AND ({", ".join(f"a.{name}" for name in columns)}) {than}
                (SELECT {key} FROM twolane.approvals WHERE tenant = $1 AND id = ${len(values)})"""
        values.append(limit)
        by = ", ".join(f"a.{name} {direction}" for name in columns)
        return await self._fetch_all(APPROVALS, f"{_APPROVALS}{conditions} ORDER BY {by} LIMIT ${len(values)}", *values)

    async def list_approval_groups(
        self, *, tenant: str, by: ApprovalGrouping, limit: int, **narrowed: Unpack[NarrowedApprovals]
    ) -> Sequence[ApprovalGroup]:
        values: list[object] = [tenant]
        conditions = _build_conditions(values, narrowed)
        values.append(limit)
        return await self._fetch_all(
            _GROUPS,
            f"{_GROUPS_OF}{conditions} GROUP BY {_GROUPED[by]} ORDER BY 2 DESC, 4, 1 LIMIT ${len(values)}",
            *values,
        )

    async def decide_approval(self, write: DecisionWrite) -> tuple[DecisionResult, Approval | None]:
        return (await self.decide_approvals([write]))[0]

    async def decide_approvals(
        self, writes: Sequence[DecisionWrite]
    ) -> Sequence[tuple[DecisionResult, Approval | None]]:
        others = [other for write in writes for other in write.others]
        rows = await self._write(
            _DECIDE, to_json(list(map(_to_fields, writes))), to_json(list(map(_to_fields, others)))
        )
        return [
            (cast(DecisionResult, result), None if approval[0] is None else APPROVALS.from_row(approval))
            for result, *approval in rows
        ]

    async def note_approval(self, write: NoteWrite) -> Approval | None:
        said = {"by": write.by, "via": write.via, "at_s": write.now_s, "text": write.text}
        kind, word = ("assigned", write.assigned) if write.text is None else ("noted", write.text)
        facts = {"approval_id": write.approval_id, "by": write.by, "via": write.via}
        further = {"to": write.assigned or None} if write.text is None else {"text": write.text}
        rows = await self._write(
            _NOTE,
            write.tenant,
            write.approval_id,
            write.assigned,
            None if write.text is None else json.dumps(said),
            write.now_s,
            kind,
            json.dumps({**facts, **further}).encode(),
            word or "",
            write.by,
            write.via,
        )
        return APPROVALS.from_row(rows[0]) if rows else None

    async def reissue(self, old_id: str, approval: Approval, *, events: Sequence[RunEvent]) -> bool:
        new = to_json(APPROVALS.to_json(approval))
        return bool(await self._call_value("reissue_approval", old_id, new, list_json(EVENTS, events)))

    async def expire(self, *, now_s: float, limit: int) -> Sequence[Approval]:
        return [APPROVALS.from_row(row) for row in await self._write(_EXPIRE, now_s, limit)]


def _to_fields(write: DecisionWrite) -> dict[str, Any]:
    return {
        "approval_id": write.approval_id,
        "tenant": write.tenant,
        "approve": write.approve,
        "by": write.by,
        "via": write.via,
        "now_s": write.now_s,
        "comment": write.comment,
        "edited": write.edited,
        "remember": write.remember,
        "grant": None if write.grant is None else GRANTS.to_json(write.grant),
        "events": [EVENTS.to_json(event) for event in write.events],
        "audit": [AUDIT.to_json(line) for line in write.audit],
        "seen": write.seen,
        "given": write.given,
        "settles": write.settles,
    }


def _build_conditions(values: list[object], narrowed: Mapping[str, object]) -> str:
    """Return the conditions of `NarrowedApprovals`, whose values are put behind `values`."""
    conditions = ""
    for name, value in narrowed.items():
        if isinstance(value, str | float):
            first = len(values) + 1
            values += _list_needles(str(value)) if name == "text" else [value]
            conditions += " AND " + _NARROWED[name].format(f"${first}", f"${first + 1}")
    return conditions


def _list_needles(text: str) -> Sequence[str]:
    """Return a text as it is, and as it stands in canonical JSON, with small ASCII letters."""
    return [
        one.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
        for one in (text, json.dumps(text, ensure_ascii=False)[1:-1])
    ]
