"""The stored records of runs, so that nothing is lost and nothing happens twice, and the store's protocol for them.

A step is written before and after its effect: planned, requested and decided where a person decides, started,
finished. A run belongs to one owner at a time, by a lease. Each change carries the fence of its lease. The store
refuses it once another owner has the run. Times are Unix seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NotRequired, Protocol, TypedDict, Unpack

from gateway.contracts.storage.audit_chain import AuditLine as AuditLine
from gateway.contracts.storage.audit_chain import AuditRow as AuditRow
from gateway.contracts.storage.grants import AskBefore as AskBefore
from gateway.contracts.storage.grants import Grant as Grant
from gateway.contracts.storage.grants import NoteWrite as NoteWrite
from gateway.contracts.storage.list_queries import (
    ApprovalGroup,
    ApprovalGrouping,
    ApprovalOrder,
    NarrowedApprovals,
    NarrowedRuns,
    Tally,
)

RunState = Literal[
    "running",
    "awaiting_approval",  # parked: no process waits for it
    "awaiting_client",  # it needs the credential of its client, which is never stored
    "unknown",  # a step was started and its outcome is unknown: a person must settle it
    "completed",
    "rejected",
    "expired",
    "failed",
    "interrupted",
    "cancelled",
]
#: States that nothing follows.
ENDED: frozenset[str] = frozenset(("completed", "rejected", "expired", "failed", "interrupted", "cancelled"))

#: No lease is so long: one that ends later was made before the clock was set back.
FAR_S: Final = 60.0
#: tool: one call that an MCP client requested.
RunKind = Literal["chat", "workflow", "tool"]
StepState = Literal[
    "planned", "requested", "started", "finished", "failed", "refused", "rejected", "expired", "cancelled", "unknown"
]
ApprovalState = Literal[
    "pending", "approved", "rejected", "expired", "cancelled", "executing", "done", "failed", "unknown"
]
#: States of an approval after it was approved.
APPROVED: frozenset[str] = frozenset(("approved", "executing", "done", "failed", "unknown"))
Via = Literal["rest", "websocket", "chat", "cli", "console", "mcp", "link"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run that has had an effect, or has requested one.

    `fingerprint` is a SHA-256 (hex): equal requests have the same. `request` is the JSON that the run began with, as it
    reached the agent loop, without any credential. `progress` is the JSON of its progress, `answer` the JSON of the
    final answer.
    """

    id: str
    tenant: str
    caller: str
    kind: RunKind = "chat"
    chain: str
    conversation: str | None = None
    fingerprint: str
    idempotency_key: str | None = None
    state: RunState
    effects: bool  # whether a tool was started
    created_s: float
    updated_s: float
    request: bytes = b""
    progress: bytes = b""
    answer: bytes | None = None
    error_code: str | None = None
    error: str | None = None
    owner: str | None = None
    lease_s: float = 0.0  # until then it is the owner's
    fence: int = 0  # counts its owners
    workflow: str | None = None  # the name of its workflow
    tool: str | None = None  # the tool of a run of the kind `tool`
    client: str | None = None  # of a call of an MCP client: that client as JSON, with its name and version


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """Some runs of a list; a store looks at so many for one page: it may be short, or empty, and not the last."""

    runs: Sequence[StoredRun]
    behind: tuple[float, str] | None = None  # begin and id of the last one looked at; None: the list ends here


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStep:
    """One tool call of a run, in the order of `number`; calls that came together have the same `round`.

    `arguments` is canonical JSON, `sha256` the hash of tool and arguments. `result` is the whole text, `shown` the
    part that the model was shown where that is less. `answer` is the rest of the result of a run of the kind `tool`:
    a JSON object of its `parts` and `structured` (`ToolResult`).
    """

    run_id: str
    tenant: str
    number: int
    round: int
    call_id: str
    tool: str
    model_name: str
    arguments: str
    sha256: str
    terminate: bool
    decision: str
    basis: str
    rule: str
    reason: str = ""
    state: StepState
    approval_id: str | None = None
    result: str | None = None
    shown: str | None = None
    started_s: float | None = None
    finished_s: float | None = None
    risk_level: str | None = None  # the model's word; one that is none of the levels as it came, as text
    tainted: bool = False  # the result contains untrusted text, or may do so
    late: str | None = None  # what a worker saw of the call after it had lost the run
    answer: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One call that a person decides on; its id is the code. `edited` are the arguments that the person changed it to.

    It is bound to the hash of tool and arguments, of the tool's definition, of the policy, and to the caller. Its check
    word is derived from `secret`, which leaves the store in no other form.
    """

    id: str
    tenant: str
    caller: str
    conversation: str | None
    run_id: str
    step: int
    tool: str
    arguments: str
    sha256: str
    definition_sha256: str
    policy_sha256: str
    basis: str
    rule: str
    reason: str
    state: ApprovalState
    created_s: float
    expires_s: float
    decided_s: float | None = None
    decided_by: str | None = None
    via: Via | None = None
    comment: str | None = None
    edited: str | None = None
    remember: Literal["once", "run", "conversation"] = "once"
    secret: str = field(repr=False)
    user: str | None = None  # the end user in whose request the call was made, where one was named
    client: str | None = None  # the MCP client that requested it, as in its run
    required: int = 1  # so many keys must approve it
    given: str = "[]"  # where several must: their approvals, as JSON (`gateway.contracts.storage.endorsements`)
    assigned: str | None = None  # the name of the person or key who is to decide
    notes: str = "[]"  # what people noted on it, as JSON: objects of by, via, at_s, text


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One event of a run, in the order of `seq`; `data` is a JSON object."""

    tenant: str
    run_id: str
    type: str
    data: bytes
    created_s: float
    seq: int = 0  # the store's


@dataclass(frozen=True, slots=True)
class Move:
    """An approval's change from one state to the next."""

    approval_id: str
    expected: ApprovalState
    to: ApprovalState


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change that the owner of the run writes at once. A step replaces the one of the same number."""

    run: StoredRun
    new: bool = False  # the run is not there yet
    repeats: bool = False  # an earlier line of this owner ended with UncertainError: what it wrote may be there
    durable: bool = True  # False: it outlives the process, but maybe no power cut
    takes_key_of: str | None = None  # the run whose Idempotency-Key a new one gets, as that one is over
    request: bytes | None = None  # replaces that of the run, which has ended
    passes_on: bool = False  # the fence moves on: a change from the same reading is too late
    steps: tuple[StoredStep, ...] = ()
    approvals: tuple[Approval, ...] = ()  # new ones
    asks_once: bool = False  # nothing is written if one of them waits already, in another run (`AskedAlreadyError`)
    moves: tuple[Move, ...] = ()
    events: tuple[RunEvent, ...] = ()
    audit: tuple[AuditLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionWrite:
    """The decision of a person. `edited` and its hash replace the arguments; `grant` remembers the decision.

    `given` are the endorsements with this one, where several must approve, and `seen` the ones that it was made on.
    `settles` False: others must approve, too, so the approval stays pending.
    """

    approval_id: str
    tenant: str
    approve: bool
    by: str
    via: Via
    now_s: float
    comment: str | None = None
    edited: str | None = None
    remember: Literal["once", "run", "conversation"] = "once"
    grant: Grant | None = None
    events: tuple[RunEvent, ...] = ()
    audit: tuple[AuditLine, ...] = ()
    others: "tuple[DecisionWrite, ...]" = ()  # decided with it, as far as they are pending
    seen: str | None = None
    given: str | None = None
    settles: bool = True


#: decided: now; same: before, alike; other: before, otherwise, or it is cancelled; expired; absent: there is none;
#: held: it could be decided, and is not, because another one of its request cannot; moved: others have approved or
#: edited it since it was read.
DecisionResult = Literal["decided", "same", "other", "expired", "absent", "held", "moved"]


class ConflictError(Exception):
    """The error that a run has another owner, an approval an unexpected state, or a call is late: nothing changed."""


class AskedAlreadyError(ConflictError):
    """The error that another run waits for the same call, of the same caller and end user in the same conversation."""


class KeyTakenError(ConflictError):
    """The error that another run of the caller has the Idempotency-Key of a new one."""


#: A request counts as one that waits for so long after it has last said so: its worker may have died since.
AWAITED_S: Final = 60.0


class Cancellation(TypedDict):
    """The facts of a cancellation. `waiter` is one of the requests that may wait for the run: the others spare it."""

    tenant: str
    now_s: float
    events: Sequence[RunEvent]
    audit: Sequence[AuditLine]
    waiter: NotRequired[str | None]


class ToolRuns(Protocol):
    """The part of the journal that is about MCP clients. Each method raises StoreError when it fails."""

    async def find_undelivered_run(self, fingerprint: str, *, tenant: str) -> StoredRun | None:
        """Return the run with this fingerprint whose result its MCP client still wants, or None."""

    async def mark_delivered(self, fingerprint: str, *, tenant: str, run_id: str) -> None:
        """Record that the client of an `undelivered` run has its result, or will not get it any more."""

    async def note_waiting_request(self, run_id: str, *, tenant: str, waiter: str, until_s: float) -> None:
        """Record that a request waits for a run until then (Unix time); one that waits no longer says 0.

        A new run of an MCP client that asks a person is awaited by the request of its own id for `AWAITED_S`.
        """


class Journal(ToolRuns, Protocol):
    """The store's side. Each method is one transaction of the store and raises StoreError when it fails.

    A durable `write`, decisions, `cancel`, `reissue` and all deletions outlive a power cut once they return.
    Approvals that expire, or are cancelled with their run, leave an event `approval.resolved` and an audit line each.
    """

    async def write(self, change: Change) -> None:
        """Write all of it or nothing. Raises ConflictError, AskedAlreadyError, KeyTakenError.

        A new run gets its Idempotency-Key from a run that ended without result and without effects, or from
        `takes_key_of`. KeyTakenError where another run of its caller has the key.

        A run that ends cancels its pending and approved approvals. A run with a `client` that requests an approval, or
        whose outcome is unknown, is `undelivered` from then on. AskedAlreadyError where it requests one while another
        run of its fingerprint is.
        """

    async def run(self, run_id: str, *, tenant: str) -> StoredRun | None: ...

    async def list_runs(
        self, *, tenant: str, after: str | None = None, limit: int, **narrowed: Unpack[NarrowedRuns]
    ) -> RunPage:
        """Return runs without request, progress, answer: newest first, then greatest id; `after`: behind this id."""

    async def list_runs_by_fingerprint(self, fingerprint: str, *, tenant: str, since_s: float) -> Sequence[StoredRun]:
        """Return the runs of this fingerprint that were updated since `since_s`, newest first."""

    async def list_runs_with_key(self, idempotency_key: str, *, tenant: str, caller: str) -> Sequence[StoredRun]: ...

    async def list_steps(self, run_id: str, *, tenant: str) -> Sequence[StoredStep]:
        """Return the steps in the order of their numbers."""

    async def claim(
        self,
        *,
        owner: str,
        now_s: float,
        until_s: float,
        states: Sequence[RunState],
        run_id: str | None,
        limit: int,
        over_s: float | None = None,
    ) -> Sequence[StoredRun]:
        """Assign runs in these states without a lease to the owner, each with its next fence; return them as changed.

        A run that awaits approvals is claimed only when none of them is pending. A lease is over that ended before
        `over_s`, or ends more than `FAR_S` behind it; at 0 none is. None: `over_s` is `now_s`.

        A store with a clock of its own reads the times as distances from `now_s`: how long the lease lasts, and how
        long another one must have been over. So it does in `renew`, and with the lease of a run that is written, as a
        distance from `updated_s`.
        """

    async def write_late_report(
        self, step: StoredStep, *, events: Sequence[RunEvent], audit: Sequence[AuditLine]
    ) -> None:
        """Write `step.late`, and nothing else of the step, under any owner of the run."""

    async def renew(self, *, owner: str, run_ids: Sequence[str], now_s: float, until_s: float) -> Sequence[str]:
        """Prolong the leases of these runs; return the ids of the runs that are still the owner's."""

    async def release(self, *, owner: str, run_ids: Sequence[str] | None = None) -> int:
        """Give up all leases of an owner, whose changes are too late from then on; return how many there were.

        With `run_ids`, only the leases of these runs, which nothing drives.
        """

    async def cancel(self, run_id: str, **how: Unpack[Cancellation]) -> bool:
        """End a run with its pending and approved approvals: its owner changes it no more.

        Return False if it had ended, or if a request other than the `waiter` waits for it. The `waiter` itself waits
        no longer.
        """

    async def get_approval(self, approval_id: str, *, tenant: str) -> Approval | None: ...

    async def list_approvals(
        self,
        *,
        tenant: str,
        order: ApprovalOrder = "oldest",
        after: str | None = None,
        limit: int,
        **narrowed: Unpack[NarrowedApprovals],
    ) -> Sequence[Approval]:
        """Return approvals; `after`: behind the one of this id, none if it is not there.

        The order `urgency` is that of pending approvals: the list has no others.
        """

    async def list_approval_groups(
        self, *, tenant: str, by: ApprovalGrouping, limit: int, **narrowed: Unpack[NarrowedApprovals]
    ) -> Sequence[ApprovalGroup]:
        """Return the pending approvals in groups, the largest group first, then the one that expires first."""

    async def tally(self, *, tenant: str) -> Tally:
        """Count the pending approvals and the runs that have not ended, of one tenant."""

    async def decide_approval(self, write: DecisionWrite) -> tuple[DecisionResult, Approval | None]:
        """Decide a pending approval, once, or endorse it; return the result and the approval as it is afterwards.

        The events, the audit lines and the grant of the decision are written only when it is `decided`.
        """

    async def decide_approvals(
        self, writes: Sequence[DecisionWrite]
    ) -> Sequence[tuple[DecisionResult, Approval | None]]:
        """Decide several different approvals, all of them or none; return the results in their order."""

    async def reissue(self, old_id: str, approval: Approval, *, events: Sequence[RunEvent]) -> bool:
        """Replace a pending approval, which is cancelled, with a new one; False: it was not pending."""

    async def note_approval(self, write: NoteWrite) -> Approval | None:
        """Assign a pending approval, or note something on it, on record; return it. None: it is not pending."""

    async def expire(self, *, now_s: float, limit: int) -> Sequence[Approval]:
        """End up to `limit` pending approvals whose time is over, the longest over first; return them."""

    async def list_grants(self, *, tenant: str, now_s: float, after: str | None = None, limit: int) -> Sequence[Grant]:
        """Return unexpired grants, oldest first; `after`: behind this id, expired or not; none if it is not there."""

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
        """Return the newest unexpired grant for this call in this run, or of this end user in this conversation."""

    async def grant_by_id(self, grant_id: str, *, tenant: str) -> Grant | None:
        """Return the grant of this id, also one that has expired and is not pruned yet."""

    async def delete_grant(self, grant_id: str, *, tenant: str, audit: Sequence[AuditLine]) -> bool:
        """Delete a grant; return whether there was one. The lines are written if there was."""

    async def put_ask(self, ask: AskBefore) -> None:
        """Require approval of every call of this user in this conversation from now on; a repeat ends later."""

    async def list_asks(
        self, *, tenant: str, now_s: float, after: str | None = None, limit: int
    ) -> Sequence[AskBefore]:
        """Return unexpired records, oldest first; `after`: behind this id, expired or not; none if it is not there."""

    async def ask_by_id(self, ask_id: str, *, tenant: str) -> AskBefore | None:
        """Return the ask of this id, also one that has expired and is not pruned yet."""

    async def delete_ask(self, ask: AskBefore, *, audit: Sequence[AuditLine]) -> bool:
        """Delete an ask; return whether it was there. The lines are written if it was."""

    async def list_events(
        self, *, after: int, tenant: str | None = None, run_id: str | None = None, limit: int
    ) -> Sequence[RunEvent]:
        """Return events in order, from behind `after`."""

    async def get_last_event(self) -> int:
        """Return the highest `seq` so far, 0 at first."""

    async def audit(self, *, after: int, limit: int) -> Sequence[AuditRow]:
        """Return audit lines in order, from behind `after`."""
