"""The narrowing of a run by a request that decides: its fields apply to what the run does from there on.

A narrowing is a JSON object with what the request wants and the run did not have. It widens nothing, and several of
them hold together. It is written with the decision, in its event, so the worker that continues the run finds it.
"""

from collections.abc import Mapping
from typing import Final

import orjson

from gateway.contracts.exchange import Exchange
from gateway.contracts.records import replace
from gateway.contracts.storage.journal import Journal, StoredRun
from gateway.contracts.storage.store import Json

#: The fact of an event that holds a narrowing.
NARROWS: Final = "narrows"
_DECIDED: Final = frozenset(("approval.resolved", "approval.partly_approved"))
#: Events of one query.
_BATCH: Final = 500


def build_narrowing(own: Exchange, run: StoredRun) -> Json:
    """Return how a request that decides narrows a run; {} if it wants nothing that the run does not have.

    `own` is the exchange of the request as if it began a run.
    """
    began: Json = orjson.loads(run.request)
    limit, choice = began.get("max_tool_calls"), began["body"].get("tool_choice")
    wishes = own.steering
    asks = [name for name in wishes.ask_first if name not in began.get("ask_first", ())]
    no_tools = wishes.no_tools and not began.get("no_tools", False)
    no_functions = own.body.get("tool_choice") == "none" or (no_tools and not own.body.get("tools"))
    is_lower = wishes.max_tool_calls is not None and (limit is None or wishes.max_tool_calls < limit)
    wanted = {
        "no_tools": no_tools,
        "no_functions": no_functions and choice != "none",
        "only": list(wishes.only_tools) if set(wishes.only_tools) != set(began["only_tools"]) else [],
        "ask_first": asks,
        "max_tool_calls": wishes.max_tool_calls if is_lower else None,
        "rejects": wishes.approvals == "reject" and began["approvals"] != "reject",
    }
    return {name: value for name, value in wanted.items() if value}


def apply_narrowing(run: Exchange, narrowing: Mapping[str, object]) -> Exchange:
    """Return the exchange of a run with this narrowing, too."""
    told: Json = dict(narrowing)
    steering, body = run.steering, run.body
    only, limits = tuple(told.get("only", ())), [told.get("max_tool_calls"), steering.max_tool_calls]
    if told.get("no_functions") and body.get("tools"):
        body = {**body, "tool_choice": "none"}
    steering = replace(
        steering,
        no_tools=steering.no_tools or told.get("no_tools", False),
        only_tools=steering.only_tools or only,
        within=(*steering.within, only) if only and steering.only_tools else steering.within,
        ask_first=tuple(dict.fromkeys((*steering.ask_first, *told.get("ask_first", ())))),
        max_tool_calls=min((limit for limit in limits if limit is not None), default=None),
        approvals="reject" if told.get("rejects") else steering.approvals,
    )
    return replace(run, body=body, steering=steering)


async def list_narrowings(store: Journal, run_id: str, *, tenant: str) -> list[Json]:
    """Return how the decisions on a run narrow it, in their order. Raises StoreError."""
    found: list[Json] = []
    after = 0
    while events := await store.list_events(after=after, tenant=tenant, run_id=run_id, limit=_BATCH):
        told = (orjson.loads(event.data) for event in events if event.type in _DECIDED)
        found += [facts[NARROWS] for facts in told if NARROWS in facts]
        after = events[-1].seq
    return found
