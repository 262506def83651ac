"""The stored responses and conversations of the Responses API, and the store's protocol for them.

1. A response is written as a whole. One that has ended never changes, whichever worker writes it later.
2. The log of a background answer grows at its end only, by the worker that has the run.
3. Everything belongs to a tenant: the id of another one names nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

ResponseState = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
#: States that another one follows.
OPEN: frozenset[str] = frozenset(("queued", "in_progress"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """A response, and its request. The run `run_id` answers it.

    `request` is a JSON object: the fields of the request without its input. `input` is a JSON list: the items of this
    request, and none of an earlier response. `output` is a JSON object, the response as it ended.

    `idempotency_key` and `fingerprint` belong to a request whose run another request began: no run has them. `decides`
    are the approvals that the request decides on, separated by blanks.
    """

    id: str
    tenant: str
    caller: str
    state: ResponseState
    created_s: float  # Unix time
    run_id: str
    previous_id: str | None = None  # the response that this one continues
    conversation: str | None = None
    background: bool = False
    request: bytes
    input: bytes
    output: bytes | None = None
    idempotency_key: str | None = None
    fingerprint: str = ""
    decides: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConversation:
    """A conversation of the Responses API without its items; `metadata` is a JSON object."""

    id: str
    tenant: str
    created_s: float  # Unix time
    metadata: bytes


class ResponseStore(Protocol):
    """The store's side. Each method is one transaction of the store, unless its description names steps.

    Deletions outlive a power cut once they return. Other writes outlive the process.
    """

    async def put_response(
        self,
        response: StoredResponse,
        *,
        adds: Sequence[tuple[str, bytes]] = (),
        takes_key_of: str | None = None,
        now_s: float = 0.0,
    ) -> bool:
        """Insert a response, or replace the open one of this id, whose caller, time and Idempotency-Key stay.

        One that has ended stays as it is; then return False. `adds` are the items that it adds to its conversation, if
        there is one, when it is written: both or neither are. They are added once for the same decisions: not if the
        conversation has items of all of `decides` from another response.

        A new response gets its Idempotency-Key from the response `takes_key_of`. Raises KeyTakenError, and writes
        nothing, where another one of its caller has the key.
        """

    async def get_response(self, response_id: str, *, tenant: str) -> StoredResponse | None: ...

    async def find_response_with_key(
        self, idempotency_key: str, *, tenant: str, caller: str
    ) -> StoredResponse | None: ...

    async def list_response_chain(self, response_id: str, *, tenant: str, limit: int) -> Sequence[StoredResponse]:
        """Return a response behind the ones that it continues, oldest first, the last `limit` of them.

        Where one of them is missing, the sequence begins behind it: its first one has a `previous_id`. It works in
        steps.
        """

    async def find_newest_open_response(self, run_id: str, *, tenant: str) -> StoredResponse | None:
        """Return the newest response of this run that has not ended."""

    async def delete_response(self, response_id: str, *, tenant: str) -> bool:
        """Delete a response with its log, in steps; return whether there was one."""

    async def append_answer(
        self, response_id: str, *, tenant: str, fence: int, start: int, chunks: Sequence[bytes]
    ) -> None:
        """Append chunks to the log of a response, which has `start` chunks.

        Raises ConflictError, and writes nothing, if the log has another length, the response's run has another fence,
        or one of the two is not there.
        """

    async def list_answer_chunks(self, response_id: str, *, tenant: str, start: int, limit: int) -> Sequence[bytes]:
        """Return up to `limit` chunks of the log of a response from number `start` on; the first one has number 0."""

    async def put_conversation(self, conversation: StoredConversation, *, now_s: float) -> None:
        """Insert a conversation, or replace the metadata of the one of this id."""

    async def get_conversation(self, conversation_id: str, *, tenant: str) -> StoredConversation | None: ...

    async def delete_conversation(self, conversation_id: str, *, tenant: str) -> bool:
        """Delete a conversation with its items, in steps; return whether there was one."""

    async def add_items(
        self, conversation_id: str, items: Sequence[tuple[str, bytes]], *, tenant: str, now_s: float
    ) -> bool:
        """Add items, each an id and a JSON object, to the end of the conversation; False: there is none of this id.

        An item whose id is there already stays as it is, where it is.
        """

    async def list_items(
        self, conversation_id: str, *, tenant: str, after: str | None, limit: int, newest_first: bool
    ) -> Sequence[bytes]:
        """Return up to `limit` items in order; `after`: behind the one of this id, none if it is not there."""

    async def list_all_items(self, conversation_id: str, *, tenant: str) -> Sequence[bytes]:
        """Return all items of a conversation, oldest first. It works in steps."""

    async def get_item(self, conversation_id: str, item_id: str, *, tenant: str) -> bytes | None: ...

    async def delete_item(self, conversation_id: str, item_id: str, *, tenant: str, now_s: float) -> bool:
        """Delete an item; return whether there was one."""
