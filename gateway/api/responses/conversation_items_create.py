"""Items that a client adds to a conversation by itself: any item that a request's input could have at that place.

What is wrong with one must come out when it is added, and not with each later request that goes on from it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.responses.call_outputs import pair_items
from gateway.dialects.responses.conversation import unseal_summary
from gateway.dialects.responses.items import COMPACTION, OUTPUT_OF, OUTPUTS, build_input_items

#: The type of items that ask for an approval.
QUESTION: Final = "mcp_approval_request"
#: The type of items that answer one of these.
ANSWER: Final = "mcp_approval_response"


def depends_on_earlier(item: Json) -> bool:
    """Return whether an item may be wrong because of earlier items: their ids, and calls that wait for outputs."""
    return bool(item.get("id")) or item["type"] in OUTPUTS or item["type"] in OUTPUT_OF or item["type"] == ANSWER


def check_added(items: Sequence[Json], earlier: Sequence[bytes], *, unseal: Callable[[str], str]) -> None:
    """Check items that go behind the items of a conversation. An identical one that is there already does not count.

    Outputs may follow later. An approval response needs its request before it, and decides nothing: only the `input` of
    a request for a response does. openai-agents adds both to its conversations. Raises GatewayError (invalid_field).
    """
    before: list[Json] = [orjson.loads(item) for item in earlier]
    asked = {item["id"].lower() for item in before if item["type"] == QUESTION}
    for i, item in enumerate(items):
        if item["type"] == QUESTION:
            asked.add(item["id"].lower())
        elif item["type"] == ANSWER and item["approval_request_id"].lower() not in asked:
            text = (
                f"'items[{i}]' answers no approval request before it, and decides nothing here: send it as 'input' of "
                "a request for a response."
            )
            raise GatewayError("invalid_field", text, param=f"items[{i}].approval_request_id")
        elif item["type"] == COMPACTION:
            unseal_summary(item, unseal, place=f"items[{i}].encrypted_content")
    known = {item["id"]: item for item in before}
    new = [i for i, item in enumerate(items) if not _is_known(item, known)]
    place = _Places(len(before), new)
    pair_items([*before, *(items[i] for i in new)], place=place, may_lack_outputs=True)


def _is_known(item: Json, known: dict[str, Json]) -> bool:
    there = known.get(item.get("id") or "")
    return there is not None and build_input_items([item], response_id="") == [there]


@dataclass(frozen=True, slots=True)
class _Places:
    """The places of items that are added, for errors, behind `n_earlier` of the conversation."""

    n_earlier: int
    new: Sequence[int]

    def __call__(self, index: int, field: str = "") -> str:
        if index < self.n_earlier:
            return "conversation"
        place = f"items[{self.new[index - self.n_earlier]}]"
        return f"{place}.{field}" if field else place
