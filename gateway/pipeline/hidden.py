"""Hidden turns, kept and put back: what a model did behind an answer that its client sends again with the next one."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.caller import Caller
from gateway.contracts import Clock, Exchange, Json
from gateway.pipeline.resume import Progress
from gateway.runs.turns import prefixes, put_back
from gateway.store import Store, StoreError

log = logging.getLogger("gateway")


@dataclass(frozen=True, slots=True)
class Known:
    """A conversation with what was hidden in it; `tainted`: strangers wrote some of what its model read."""

    messages: list[Json]
    tainted: bool = False


async def remembered(messages: list[Json], *, caller: Caller, store: Store) -> Known:
    """The conversation with the hidden messages of earlier turns in front of the answers that they led to."""
    answers = prefixes(messages, tenant=caller.tenant, caller=caller.name)
    if not answers:
        return Known(messages)
    try:
        known = await store.hidden(list(answers.values()), tenant=caller.tenant)
    except StoreError as error:
        log.warning("hidden turns are not remembered: %s", error)
        return Known(messages, tainted=True)  # the answers are there, whoever wrote what led to them
    found = {i: known[prefix] for i, prefix in answers.items() if prefix in known}
    whole = put_back(messages, {i: turn.messages for i, turn in found.items()})
    return Known(whole, tainted=any(turn.tainted for turn in found.values()))


async def keep(
    turns: Sequence[Json], tool_calls: Sequence[Json], *, progress: Progress, run: Exchange, store: Store, clock: Clock
) -> None:
    """Keeps the hidden messages of a turn that is over. A failure of the store is logged: it is over all the same."""
    prefix = progress.prefix
    if prefix is not None:  # the client saw the turn end before: what came of it since is hidden from it, too
        turns = [*turns, {"role": "assistant", "content": "".join(progress.said)}]
    elif turns or progress.tainted:  # of an answer that has no hidden turn, that strangers wrote it
        prefix = prefix_of(tool_calls, progress=progress, run=run)
    else:
        return
    try:
        tenant, tainted = run.caller.tenant, progress.tainted
        await store.put_hidden(prefix, turns, tenant=tenant, now_s=clock.time(), tainted=tainted)
    except StoreError as error:
        log.warning("hidden turns of run %s are not kept: %s", run.id, error)


def prefix_of(tool_calls: Sequence[Json], *, progress: Progress, run: Exchange) -> str:
    """The hash of what the client sees up to and including the answer of this turn."""
    messages = run.body["messages"] if run.resume is None or run.resume.messages is None else run.resume.messages
    answer = {"role": "assistant", "content": "".join(progress.said), "tool_calls": tool_calls}
    return prefixes([*messages, answer], tenant=run.caller.tenant, caller=run.caller.name)[len(messages)]


def retold(progress: Progress, run: Exchange) -> str:
    """What a client is to see again of a run whose turn had not ended; nothing of one whose turn had."""
    if progress.prefix is None:
        return "".join(progress.said)
    progress.said = []
    if run.resume is not None and run.resume.messages is not None:
        progress.prefix = None
    return ""
