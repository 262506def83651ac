"""The decisions that a request carries as `mcp_approval_response` items, and the questions that its conversation shows.

Responses behind the last item of an answer in the request's own input are its decisions. Earlier ones are history.
Messages of the user there may be history as well: a client that stores nothing leaves questions out and sends the rest.
"""

from collections.abc import Sequence
from itertools import chain

from gateway.contracts.chat_decisions import ChatDecision, ShownCall
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import SaidBeside
from gateway.dialects.offered_tools import GATEWAY
from gateway.dialects.responses.call_outputs import PlaceWriter
from gateway.dialects.responses.items import is_of_response
from gateway.dialects.responses.parts import convert_to_chat_content


def parse_decisions(own: Sequence[Json], earlier: Sequence[Json], *, place: PlaceWriter) -> tuple[ChatDecision, ...]:
    """Return the decisions among the items of a request itself, with the calls that the conversation shows for them.

    Raises GatewayError (invalid_field) for two decisions on one call.
    """
    start = _find_answers_end(own)
    made: dict[str, tuple[int, Json]] = {}
    for index in range(start, len(own)):
        if (item := own[index])["type"] != "mcp_approval_response":
            continue
        approval_id = item["approval_request_id"].lower()
        if approval_id in made:
            where = place(index, "approval_request_id")
            raise GatewayError("invalid_field", f"'{where}' decides on the same call again.", param=where)
        made[approval_id] = index, item
    if not made:
        return ()
    shown: dict[str, list[ShownCall]] = {approval_id: [] for approval_id in made}
    for item in chain(earlier, own):
        if item["type"] == "mcp_approval_request" and (approval_id := item["id"].lower()) in made:
            label, name = item["server_label"], item["name"]
            tool = name if label == GATEWAY else f"{label}.{name}"
            shown[approval_id].append(ShownCall(approval_id, tool, item["arguments"]))
    return tuple(_build_decision(approval_id, item, shown[approval_id]) for approval_id, (_, item) in made.items())


def find_user_messages(own: Sequence[Json], *, is_whole: bool) -> SaidBeside | None:
    """Return the messages of the user that come with the decisions of a request, or None if there are none.

    `is_whole`: the request goes on from nothing that is stored.
    """
    said = [(index, item) for index, item in enumerate(own) if item["type"] == "message" and item["role"] == "user"]
    start = _find_answers_end(own)
    if not (behind := sum(index >= start for index, _ in said)):
        return None
    messages = tuple({"role": "user", "content": convert_to_chat_content(item["content"])} for _, item in said)
    return SaidBeside(messages=messages, behind=behind, is_whole=is_whole)


def _find_answers_end(own: Sequence[Json]) -> int:
    """Return the index behind the last item of an answer."""
    return next((i + 1 for i in range(len(own) - 1, -1, -1) if is_of_response(own[i])), 0)


def _build_decision(approval_id: str, item: Json, shown: Sequence[ShownCall]) -> ChatDecision:
    """Return the decision in an approval response item."""
    return ChatDecision(
        approve=item["approve"],
        ids=(approval_id,),
        comment=item.get("reason") or None,
        shown=tuple(shown),
        in_field=True,
    )


def list_decided_approvals(items: Sequence[Json]) -> list[str]:
    """Return the approvals that the items of a request decide on."""
    return [item["approval_request_id"].lower() for item in items if item["type"] == "mcp_approval_response"]


def list_last_questions(items: Sequence[Json]) -> tuple[str, ...]:
    """Return the questions of the last answer of a conversation that no response follows."""
    shown: dict[str, None] = {}
    in_answer = False
    for item in items:
        if is_of_response(item):
            if not in_answer:
                shown.clear()
            in_answer = True
            if item["type"] == "mcp_approval_request":
                shown[item["id"].lower()] = None
        else:
            in_answer = False
            if item["type"] == "mcp_approval_response":
                shown.pop(item["approval_request_id"].lower(), None)
    return tuple(shown)
