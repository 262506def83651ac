"""Hidden turns, kept and put back: what a model did behind an answer that its client sends again with the next one."""

import logging
from collections.abc import Sequence

from gateway.caller import Caller
from gateway.contracts import Clock, Exchange, Json, Store, StoreError
from gateway.runs.turns import prefixes, put_back

log = logging.getLogger("gateway")


async def remembered(messages: list[Json], *, caller: Caller, store: Store) -> list[Json]:
    """The conversation with the hidden messages of earlier turns in front of the answers that they led to."""
    answers = prefixes(messages, tenant=caller.tenant, caller=caller.name)
    if not answers:
        return messages
    try:
        known = await store.hidden(list(answers.values()), tenant=caller.tenant)
    except StoreError as error:
        log.warning("hidden turns are not remembered: %s", error)
        return messages
    return put_back(messages, {i: known[prefix] for i, prefix in answers.items() if prefix in known})


async def keep(turns: Sequence[Json], prefix: str, *, run: Exchange, store: Store, clock: Clock) -> None:
    """Keeps the hidden messages of a turn. A failure of the store is logged: the turn is over all the same."""
    try:
        await store.put_hidden(prefix, turns, tenant=run.caller.tenant, now_s=clock.time())
    except StoreError as error:
        log.warning("hidden turns of run %s are not kept: %s", run.id, error)


def prefix_of(messages: Sequence[Json], *, caller: Caller) -> str:
    """The hash of a conversation whose last message is the answer."""
    return prefixes(messages, tenant=caller.tenant, caller=caller.name)[len(messages) - 1]
