"""Steers of responses over one WebSocket: a user's further words while a response is answered (decision 0102).

The gateway lets a response end as it would, and its successor begins with the words. A response that waits for its
client keeps them until the client goes on from it. Steers are of their WebSocket alone, and end with it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.field_checks import refuse
from gateway.dialects.json_object import parse_json_object
from gateway.dialects.responses.items import OUTPUT_OF, check_item
from gateway.runs.run_id import generate_run_id

#: The most bytes of a steer, and the most responses that are remembered. The WebSocket bounds the steers of a response.
STEER_BYTES, REMEMBERED = 256 * 1024, 8
TYPE: Final = "response.steer"
_FIELDS: Final = frozenset(("type", "previous_response_id", "input"))
_MESSAGE_FIELDS: Final = frozenset(("type", "role", "content"))


@dataclass(frozen=True, slots=True)
class Steer:
    """One steer that the gateway has accepted. `input` is as it came, `items` are the messages that it is."""

    id: str
    response_id: str
    input: object
    items: Sequence[Json]


@dataclass(slots=True)
class SteerQueue:
    """The steers of one WebSocket. `active` is the response that is answered; `unsteerable` is why it takes none."""

    active: str | None = None
    unsteerable: str | None = None
    _accepted: list[Steer] = field(default_factory=list)
    _waiting: dict[str, list[Steer]] = field(default_factory=dict)
    _ended: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _n_events: int = 0

    def begin_response(self, response_id: str, *, unsteerable: str | None) -> None:
        """Take steers for a response from now on."""
        self.active, self.unsteerable = response_id, unsteerable

    def add_steer(self, body: Json) -> Json:
        """Accept a steer, or not. Return the event that says so."""
        before = found if isinstance(found := body.get("previous_response_id"), str) else ""
        try:
            items = _check_steer(body)
        except GatewayError as error:
            return self._build_failure(None, before, body.get("input"), "invalid_input", error.message)
        if before != self.active:
            known = before in self._ended or before in self._waiting
            code = "response_already_completed" if known else "response_not_found"
            text = "No response with this id is answered on this WebSocket: send 'input' in a 'response.create'."
            return self._build_failure(None, before, body["input"], code, text)
        if self.unsteerable is not None:
            return self._build_failure(None, before, body["input"], "steering_not_supported", self.unsteerable)
        steer = Steer("steer_" + generate_run_id().removeprefix("run_"), before, body["input"], items)
        self._accepted.append(steer)
        return self._build_event("accepted", steer={"id": steer.id, "previous_response_id": before})

    def end_response(self, response: Json | None) -> tuple[list[Json], list[Steer]]:
        """Return the events behind a response that has ended, and the steers that its successor begins with.

        None: it has not ended in a way that another response could go on from.
        """
        ended, self.active = self.active, None
        accepted, self._accepted = self._accepted, []
        if ended is None:
            return [], []
        self._ended.append(ended)
        if response is None or response["status"] not in ("completed", "incomplete"):
            return self.build_failures(accepted, "response_not_active", "The response has failed."), []
        if not accepted or not (stubs := list_required_input(response["output"])):
            return [], accepted
        self._waiting[ended] = accepted
        events = [
            self._build_event(
                "pending",
                steer={"id": one.id, "previous_response_id": ended},
                reason="waiting_for_required_input",
                required_input=stubs,
            )
            for one in accepted
        ]
        if len(self._waiting) > REMEMBERED:
            oldest = self._waiting.pop(next(iter(self._waiting)))
            text = f"More than {REMEMBERED} responses on this WebSocket wait with steers."
            events += self.build_failures(oldest, "too_many_pending_steers", text)
        return events, []

    def take_waiting(self, response_id: object) -> list[Steer]:
        """Return the steers that wait for a request which goes on from a response, and forget them."""
        return self._waiting.pop(response_id, []) if isinstance(response_id, str) else []

    def build_failures(self, steers: Sequence[Steer], code: str, message: str) -> list[Json]:
        """Return the events of accepted steers that came to nothing."""
        text = f"{message} Send the input in a 'response.create'."
        return [self._build_failure(one.id, one.response_id, one.input, code, text) for one in steers]

    def _build_failure(self, steer_id: str | None, before: str, given: object, code: str, message: str) -> Json:
        steer: Json = {"previous_response_id": before, "input": given}
        if steer_id is not None:
            steer["id"] = steer_id
        return self._build_event(
            "failed", steer=steer, error={"type": "invalid_request_error", "code": code, "message": message}
        )

    def _build_event(self, kind: str, **fields: object) -> Json:
        self._n_events += 1
        return {"type": f"{TYPE}.{kind}", **fields, "sequence_number": self._n_events - 1}


def find_steer(content: bytes) -> Json | None:
    """Return the object of a message that is a steer, and None for any other: its turn reads that."""
    if len(content) > STEER_BYTES or TYPE.encode() not in content:
        return None
    try:
        body = parse_json_object(content)
    except GatewayError:
        return None
    return body if body.get("type") == TYPE else None


def list_required_input(output: Sequence[Json]) -> list[Json]:
    """Return the stubs of the items that a response waits for: outputs of its client's tools, and decisions."""
    decided = {item.get("approval_request_id") for item in output if item["type"] == "mcp_call"}
    stubs: list[Json] = []
    for item in output:
        if (kind := OUTPUT_OF.get(item["type"])) is not None:
            name = {"name": item["name"]} if item["type"] == "function_call" else {}
            stubs.append({"type": kind, "call_id": item["call_id"], **name})
        elif item["type"] == "mcp_approval_request" and item["id"] not in decided:
            stubs.append({"type": "mcp_approval_response", "approval_request_id": item["id"]})
    return stubs


def build_successor(body: Json, response_id: str, steers: Sequence[Steer]) -> bytes:
    """Return the message of the response that goes on from another one, with its settings."""
    items = [item for steer in steers for item in steer.items]
    return orjson.dumps({**body, "previous_response_id": response_id, "input": items})


def prepend_steers(given: object, steers: Sequence[Steer]) -> object:
    """Return the input of a request behind what steers said before. A wrong input stays as it is."""
    if not steers or not isinstance(given, str | list | None):
        return given
    own = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given or []
    return [*(item for steer in steers for item in steer.items), *own]


def find_unsteerable_reason(body: Json, *, compacts: bool) -> str | None:
    """Return why the response to a message takes no steers; None if it does."""
    if body.get("conversation") is not None:
        return "A response of a conversation takes no steers."
    if compacts or body.get("context_management"):
        return "A response with compaction takes no steers."
    return None


def _check_steer(body: Json) -> list[Json]:
    """Return the messages of a steer. Raises GatewayError."""
    if (unknown := next((name for name in body if name not in _FIELDS), None)) is not None:
        raise GatewayError("unknown_parameter", f"Unknown parameter: '{unknown[:64]}'.", param=unknown[:64])
    if not isinstance(body.get("previous_response_id"), str):
        refuse("previous_response_id", "the id of the response that is answered")
    given = body.get("input")
    if isinstance(given, str) and given:
        return [{"type": "message", "role": "user", "content": given}]
    if type(given) is not list or not given:
        refuse("input", "text, or a list of messages of the user")
    items = [check_item(f"input[{i}]", item) for i, item in enumerate(given)]
    for i, item in enumerate(items):
        if item["type"] != "message" or item["role"] != "user" or item.keys() - _MESSAGE_FIELDS:
            refuse(f"input[{i}]", "a message of the user with 'type', 'role' and 'content' alone")
    return items
