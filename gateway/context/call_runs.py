"""A call that an MCP client wants, of a tool or a workflow, the run that it waits for, and what becomes of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gateway.auth.keyring import Identity
from gateway.contracts.canonical_json import write_canonical
from gateway.contracts.exchange import CallProgress
from gateway.contracts.storage.journal import Approval, RunState, StoredStep
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolResult
from gateway.runs.idempotency_key import hash_request
from gateway.runs.live_run import LiveRun
from gateway.tools.results import clean
from gateway.workflows.definition import Workflow

#: Of a message about the progress of a call, which its server writes.
MESSAGE_CHARS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedCall:
    """One call that a client requests. `tool` is the inside name of a tool, or of a `workflow` as a tool.

    `only_tools` are the inside names of the tools that the workflow's steps may call. `client` are the name and the
    version of the MCP client, each a visible line. `user` is the end user of a shared key.
    """

    tool: str
    arguments: Json
    identity: Identity
    client: Json
    user: str | None = None
    idempotency_key: str | None = None
    workflow: Workflow | None = None
    only_tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a call: its result, or the reason why it did not run or is not known (`state`)."""

    result: ToolResult
    run_id: str
    state: RunState = "completed"


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that waits for a person. `obstacle`: why it cannot run any more, even if approved."""

    approvals: Sequence[Approval]
    run_id: str
    obstacle: str | None = None


@dataclass(slots=True, eq=False)
class CallRun:
    """The run of a call, new or joined, as its client waits for it: an `exchange.CallWatcher`.

    `waiter` names this request among the requests that wait for the run. `is_shared`: others may wait for it, too.
    `live` is set while this worker drives it. `is_owed`: the same call joins it until it is delivered.
    `is_workflow`: its result is that of a workflow, and not that of its last call.
    """

    id: str
    tenant: str
    fingerprint: str
    waiter: str
    is_shared: bool = False
    live: LiveRun | None = None
    is_owed: bool = False
    is_workflow: bool = False
    step: StoredStep | None = None
    place: tuple[int, int] | None = None  # so many steps of a workflow are over, of so many
    tell: Callable[[CallProgress], None] | None = None
    said_s: float | None = None  # of the loop's time: when the store last recorded that this request waits

    def on_step_begun(self, step: str, *, number: int, total: int) -> None:
        self.place = number, total
        self.report_progress(CallProgress(f"Step {number + 1} of {total}: {step}"))

    def report_progress(self, progress: CallProgress) -> None:
        """Pass a report on to the client, with cleaned text and, in a workflow, the count of steps."""
        if self.tell is None:
            return
        message = progress.message
        if self.is_workflow:  # its steps are counted, and not what a tool of one counts
            progress = CallProgress(message, *(self.place or ()))
        self.tell(replace(progress, message=None if message is None else clean(message)[:MESSAGE_CHARS]))

    def report_result(self, step: StoredStep) -> None:
        self.step = step


def fingerprint_call(wanted: WantedCall) -> str:
    """Return the hash of caller, end user, tool and arguments, by which equal calls are found."""
    caller = wanted.identity.caller
    named = {"user": wanted.user, "idempotency-key": wanted.idempotency_key}
    return hash_request(
        tenant=caller.tenant,
        caller=caller.name,
        path=f"tool {wanted.tool}",
        steering={name: value for name, value in named.items() if value is not None},
        content=write_canonical(wanted.arguments).encode("utf-8", "surrogatepass"),
    )


def build_idempotency_key(wanted: WantedCall) -> str | None:
    """Return the client's key for a call, made distinct for each end user; None without one."""
    if wanted.idempotency_key is None or wanted.user is None:
        return wanted.idempotency_key
    return f"{wanted.user}\n{wanted.idempotency_key}"
