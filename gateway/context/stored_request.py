"""The parts of a request, besides its decision, that go on with a stored run: lines, credential, messages, narrowing.

They belong to the sender. A run has the parts from its own client, and a credential only for the upstream that it was
sent for. Else the upstream would take one person's conversation for another's, or get a key that is for another one.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import orjson

from gateway.context.lane import ContextLane
from gateway.contracts.chat_decisions import ChatDecision
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange, Resume
from gateway.contracts.storage.journal import Approval, Journal, StoredRun
from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import SaidBeside
from gateway.model.call import ModelCall
from gateway.runs.decision_messages import MOST_BYTES, list_added_messages, select_new_messages
from gateway.runs.request_snapshot import load_exchange
from gateway.runs.run_restrictions import build_narrowing

#: Returns the name of the upstream that the model call of an exchange tries first; None: there is none.
UpstreamOf: TypeAlias = Callable[[Exchange], str | None]


def find_upstream(core: ModelCall, exchange: Exchange) -> str | None:
    """Return the name of the upstream that an exchange tries first; None: there is none."""
    try:
        return core.list_candidates(exchange.body).filter_allowed(exchange.caller).upstream
    except GatewayError:
        return None


def is_of_same_person(own: Exchange, run: StoredRun) -> bool:
    """Return whether a request is of the person who began a run: of the same key and end user.

    Where no end user is named, a named conversation stands for its people.
    """
    return _has_same_identity(own, load_exchange(Resume(run), approvals="turn"))


def may_read_answer(own: Exchange, run: StoredRun) -> bool:
    """Return whether a request that decides on the calls of a run may have the answer of the run.

    Over one key it is of the person who began the run. The keys of a tenant see its runs, and their end users do not.
    """
    began = load_exchange(Resume(run), approvals="turn")
    if (own.caller.tenant, own.caller.name) == (began.caller.tenant, began.caller.name):
        return _has_same_identity(own, began)
    return own.user is None or began.user in (None, own.user)


def take_narrowing(own: Exchange, run: StoredRun | None) -> Json:
    """Return the restrictions that this request adds to a run; {} if it may not or adds none."""
    return {} if run is None or not is_of_same_person(own, run) else build_narrowing(own, run)


def select_header_lines(own: Exchange, run: StoredRun, *, upstream_of: UpstreamOf) -> tuple[bytes, bytes]:
    """Return the header lines and the credential that a run resumes with; b"" where not its own."""
    began = load_exchange(Resume(run), approvals="turn")
    if not _has_same_identity(own, began):
        return b"", b""
    if not own.origin.credential or upstream_of(own) != upstream_of(began):
        return own.origin.header, b""
    return own.origin.header, own.origin.credential


async def take_messages(
    own: Exchange,
    beside: SaidBeside | None,
    run: StoredRun | None,
    *,
    decides: Sequence[str],
    store: Journal,
    hindrance: str | None = None,
) -> Json | None:
    """Return the messages beside a decision that are new to the run, as they are stored with it. None: there are none.

    `decides` are the approvals that it is about, in order. Raises StoreError, and GatewayError (invalid_field) where a
    `hindrance` is in their way, no model of the run would read them, or they are too long.
    """
    if beside is None or run is None:
        return None
    added = await list_added_messages(store, run.id, tenant=run.tenant)
    if not (new := select_new_messages(beside, run, added, decides=decides)):
        return None
    if not is_of_same_person(own, run):
        why = "the call belongs to the conversation of another person"
    elif run.kind != "chat":
        why = f"a {run.kind} has no conversation"
    elif hindrance is not None:
        why = hindrance
    elif (size_bytes := len(orjson.dumps(new))) > MOST_BYTES:
        why = f"{size_bytes:,} bytes of messages came with the decision, and a run takes {MOST_BYTES:,}"
    else:
        return {"request": own.id, "decides": decides, "messages": new}
    text = (
        f"Nothing was decided: {why}, so the message beside your approval response has no place there. Send it alone."
    )
    raise GatewayError("invalid_field", text, param="input")


async def find_hindrance(
    lane: ContextLane, decided: Sequence[tuple[Approval, ChatDecision]], run: StoredRun | None
) -> str | None:
    """Return why these decisions, all on one run, can carry no message, or None. Raises StoreError."""
    rejected = [approval for approval, decision in decided if not decision.approve]
    if rejected and await lane.approvals.ends_run(rejected[0]):
        return "a rejection ends this run"
    chain = None if run is None else lane.chains.get(run.chain)
    stage = None if chain is None else chain.find_unpassed_stage()
    return stage and f"the stage {stage!r} of its chain would not see a message that comes so"


def build_late_message_error(run_id: str) -> GatewayError:
    """Return the error of a message beside a decision that another request had made already."""
    return GatewayError(
        "decision_conflict",
        f"The call was decided before, and your message did not come with that decision, so the run {run_id} does not "
        "have it. Send the approval response alone for the answer, and the message behind that.",
        param="input",
    )


def _has_same_identity(own: Exchange, began: Exchange) -> bool:
    if (own.caller.tenant, own.caller.name, own.user) != (began.caller.tenant, began.caller.name, began.user):
        return False
    return own.user is not None or own.conversation == began.conversation
