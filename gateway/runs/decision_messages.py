"""The messages of the user that come with a decision: the model of the run reads them behind the results of its calls.

They are written with the decision, in a separate event, so the worker that continues the run finds them. No page shows
that event: the conversation belongs to the user who sent it.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from gateway.contracts.storage.journal import Journal, StoredRun
from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import SaidBeside
from gateway.dialects.message_identity import get_content_text
from gateway.text.ask_before import find_ask_request
from gateway.text.phrases import fold
from gateway.text.quotes import find_shown_text

#: The type of the event that has them.
ADDED: Final = "run.messages_added"
#: So much of them, as JSON: a run has them in each line of its record, and a query reads hundreds of events.
MOST_BYTES: Final = 256 << 10
#: Events of one query.
_BATCH: Final = 500


async def list_added_messages(store: Journal, run_id: str, *, tenant: str) -> list[Json]:
    """Return what came with the decisions on a run, each once: its `request`, what that `decides`, and `messages`.

    Raises StoreError.
    """
    found: dict[str, Json] = {}
    after = 0
    while events := await store.list_events(after=after, tenant=tenant, run_id=run_id, limit=_BATCH):
        for event in events:
            if event.type == ADDED:  # several approvals of one request have the same
                added = orjson.loads(event.data)
                found[added["request"]] = added
        after = events[-1].seq
    return list(found.values())


def select_new_messages(
    beside: SaidBeside, run: StoredRun, added: Iterable[Json], *, decides: Sequence[str]
) -> list[Json]:
    """Return the messages that the run does not have, which came in their order before the ones that it has.

    A request that goes on from what is stored has new ones only, unless one with the same decisions came before. A run
    that has ended has lost its conversation: of a request with the whole conversation, nothing counts as new.
    """
    began: Sequence[Json] = orjson.loads(run.request)["body"]["messages"]
    if beside.is_whole and not began:
        return []
    known = [message for message in began if message.get("role") == "user"] if beside.is_whole else []
    before = (one for one in added if beside.is_whole or one["decides"] == decides)
    known += [message for one in before for message in one["messages"]]
    new: list[Json] = []
    for index, message in enumerate(beside.messages):
        at = next((i for i, one in enumerate(known) if _get_parts(one) == _get_parts(message)), None)
        if at is not None:
            del known[: at + 1]
        elif index >= len(beside.messages) - beside.behind:
            new.append(message)
    return new


def has_ask_request(messages: Iterable[Json]) -> bool:
    """Return whether a message of the user wants to approve each further call."""
    folded = (fold(get_content_text(message.get("content"))).text for message in messages)
    return any(find_ask_request(text, shown=find_shown_text(text)) is not None for text in folded)


def _get_parts(message: Json) -> object:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
