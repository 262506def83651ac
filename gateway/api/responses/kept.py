"""Responses that are kept: as rows of the store from their end on, and before that by what the store has of their run.

1. A row with an output is the truth: nothing changes it any more.
2. Before that, the run is the truth. A response whose client left, or whose process died, is built from the record of
   its run when somebody asks for it.
3. Only a background response, and one that continues a stored run, has a row before its end.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import orjson

from gateway.contracts.exchange import Chunk
from gateway.contracts.journal import Approval, ConflictError, StoredRun
from gateway.contracts.plugin import Clock
from gateway.contracts.responses import StoredResponse
from gateway.contracts.store import Json, Store, StoreError, unwritten
from gateway.dialects import chat_chunks
from gateway.dialects.responses.answer import ResponseAnswer
from gateway.dialects.responses.facts import ResponseFacts
from gateway.dialects.responses.ids import response_of, run_id_of
from gateway.dialects.responses.items import listed
from gateway.dialects.responses.output.gateway_calls import OWN_LABEL
from gateway.errors import GatewayError
from gateway.runs.answer_log import AnswerLogs, Recorded, end_of, ended
from gateway.runs.live import LiveRun

#: Responses of one chain that a request reads.
CHAIN_LIMIT: Final = 10_000
#: Entries of a log that are read at once.
_BATCH: Final = 1000
#: The mark of our requests among the clients of runs (`Exchange.client`).
API: Final = "responses"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResponses:
    """The kept responses of one store, as one worker sees them.

    `is_over` returns whether the turn of a stored run is over, and `told` its answer then, with the error that it ended
    with, if any. `service_of` returns the service of a tool by its inside name.
    """

    store: Store
    logs: AnswerLogs
    clock: Clock
    is_over: Callable[[StoredRun], Awaitable[bool]]
    told: Callable[[StoredRun], Awaitable[tuple[Sequence[Chunk], GatewayError | None]]]
    service_of: Callable[[str], str | None]

    async def find(self, response_id: str, *, tenant: str) -> StoredResponse:
        """Return a response as it is at this moment.

        Raises GatewayError (response_not_found, store_full), StoreError.
        """
        row = await self._found(response_id, tenant=tenant)
        if row is None:
            raise not_found()
        return row

    async def resource(self, row: StoredResponse) -> Json:
        """Return the Response object of a response. Raises StoreError."""
        if row.output is not None:
            found: Json = orjson.loads(row.output)
            return found
        answer = self.answer_of(row)
        if row.background and (entries := await self._log_of(row)):
            _write(row.id, answer, entries, failure=None, over=False)
        return answer.resource()

    async def chain(self, response_id: str, *, tenant: str) -> Sequence[StoredResponse]:
        """Return a response and all before it, the oldest first.

        Raises GatewayError (previous_response_not_found, invalid_field), StoreError.
        """
        chain: list[StoredResponse] = []
        wanted: str | None = response_id
        while wanted is not None:
            further = list(await self.store.responses_up_to(wanted, tenant=tenant, limit=CHAIN_LIMIT))
            if not further or not further[-1].output:
                found = await self._found(wanted, tenant=tenant)
                further = [] if found is None else [found]
            if (gone := next((row.id for row in further if _is_hidden(row)), None if further else wanted)) is not None:
                raise no_previous(gone)
            chain[:0] = further
            wanted = chain[0].previous_id
            if len(chain) > CHAIN_LIMIT:
                raise GatewayError(
                    "invalid_field",
                    f"The chain of earlier responses is longer than {CHAIN_LIMIT}: POST it to /responses/compact.",
                    param="previous_response_id",
                )
        for row in chain:
            if row.output is None:
                raise GatewayError(
                    "invalid_field",
                    f"The response {row.id} is {row.state}: wait until it has ended, or cancel it.",
                    param="previous_response_id",
                )
        return chain

    async def referenced(
        self, references: Sequence[tuple[str, str]], *, wanted: Sequence[str] = (), tenant: str
    ) -> Mapping[str, Json]:
        """Return the items that a request refers to, each pair a place and an id, by their ids.

        Those of `wanted` are among them if they are kept. Raises GatewayError (item_not_found), StoreError.
        """
        rows: dict[str, Mapping[str, Json]] = {}
        found: dict[str, Json] = {}
        for place, item_id in (*references, *(("", item_id) for item_id in wanted)):
            response_id = response_of(item_id) or ""
            if response_id and response_id not in rows:
                row = await self._found(response_id, tenant=tenant)
                rows[response_id] = {} if row is None else {item["id"]: item for item in items_of(row)}
            item = rows.get(response_id, {}).get(item_id)
            if place and item is None:
                item = await self._question(item_id, place=place, tenant=tenant)
            if item is not None:
                found[item_id] = item
        return found

    async def _question(self, item_id: str, *, place: str, tenant: str) -> Json:
        """Return the request for an approval that a reference names. Raises GatewayError (item_not_found)."""
        approval = await self.store.approval(item_id.lower(), tenant=tenant)
        if approval is None:
            raise GatewayError(
                "item_not_found",
                "There is no item with this id; items of responses with 'store' false are not kept. Send the item "
                "itself.",
                param=f"{place}.id",
            )
        return _question(approval, service=self.service_of(approval.tool))

    async def put(self, row: StoredResponse) -> None:
        """Store a response. Raises GatewayError (store_full, store_uncertain)."""
        try:
            await self.store.put_response(row)
        except StoreError as error:
            raise unwritten(error, "The gateway cannot store the response; its log says why.") from None

    async def keep(self, row: StoredResponse, answer: ResponseAnswer) -> None:
        """Store a response as it has ended, and add it to its conversation. Raises GatewayError."""
        await self.put(replace(row, state=answer.status, output=answer.json))
        if row.conversation is None or answer.status not in ("completed", "incomplete"):
            return
        added = [*orjson.loads(row.input), *answer.output]
        items = [(item["id"], orjson.dumps(item)) for item in added]
        try:
            await self.store.add_items(row.conversation, items, tenant=row.tenant, now_s=self.clock.time())
        except StoreError as error:
            raise unwritten(error, "The gateway cannot add to the conversation; its log says why.") from None

    async def cancelled(self, row: StoredResponse) -> None:
        """Store a background response whose run was cancelled, as far as its log goes. Raises GatewayError, StoreError.

        The worker that drove the run has lost it, so the end of the log is written here.
        """
        run = await self.store.run(row.run_id, tenant=row.tenant)
        if run is None:
            return
        failure = GatewayError("run_cancelled", "The response was cancelled.")
        await self._end_log(row, run, await self._log_of(row), [ended(self.clock.time(), failure)])
        await self._finished(row, await self._log_of(row))

    async def delete(self, row: StoredResponse) -> None:
        """Delete a response with its log. Raises GatewayError, StoreError.

        An empty row hides one that could come back: made of its run, or written by the worker that still answers it.
        """
        await self.store.delete_response(row.id, tenant=row.tenant)
        if row.output is None or await self._of_run(row.id, tenant=row.tenant) is not None:
            nothing = replace(row, state="cancelled", previous_id=None, conversation=None, request=b"{}", input=b"[]")
            await self.put(replace(nothing, created_s=self.clock.time(), output=b""))

    def answer_of(self, row: StoredResponse, *, now_s: Callable[[], float] | None = None) -> ResponseAnswer:
        """Return the writer of a stored response's answer."""
        return ResponseAnswer(
            ResponseFacts.of_stored(orjson.loads(row.request)),
            response_id=row.id,
            created_s=row.created_s,
            now_s=now_s or self.clock.time,
            background=row.background,
        )

    def record(self, row: StoredResponse, run: LiveRun, *, fence: int, start: int = 0) -> None:
        """Record the answer of a background response from its run, behind the entries that are there, to its end."""
        answer = Recorded(response_id=row.id, tenant=row.tenant, fence=fence, start=start)

        async def over() -> None:
            await self._finished(row, await self._log_of(row))

        self.logs.record(answer, run, over=over)

    async def recording(self, run: StoredRun) -> Callable[[LiveRun], None] | None:
        """Return the function that records the answer of a run which this worker takes up. None: nobody reads a log.

        The response is the one that the run answers now, which is not always the one that it began with.
        """
        row = await self.store.open_response_of(run.id, tenant=run.tenant)
        if row is None or not row.background or self.logs.is_recording(row.id):
            return None
        return partial(self.record, row, fence=run.fence, start=len(await self._log_of(row)))

    async def _found(self, response_id: str, *, tenant: str) -> StoredResponse | None:
        """Return a response as it is at this moment. None: there is none. Raises GatewayError, StoreError."""
        row = await self.store.response(response_id, tenant=tenant) or await self._of_run(response_id, tenant=tenant)
        if row is None or _is_hidden(row):
            return None
        return row if row.output is not None else await self._settled(row)

    async def _of_run(self, response_id: str, *, tenant: str) -> StoredResponse | None:
        """Return the response of the stored run that began with its request; None: there is none."""
        run_id = run_id_of(response_id)
        run = None if run_id is None else await self.store.run(run_id, tenant=tenant)
        client = None if run is None else orjson.loads(run.request).get("client")
        if run is None or client is None or client.get("api") != API:
            return None
        return StoredResponse(
            id=response_id,
            tenant=run.tenant,
            caller=run.caller,
            state="in_progress",
            created_s=run.created_s,
            run_id=run.id,
            previous_id=client["previous_id"],
            conversation=client["conversation"],
            request=orjson.dumps(client["request"]),
            input=orjson.dumps(listed(client["input"], response_id=response_id)),
        )

    async def _settled(self, row: StoredResponse) -> StoredResponse:
        """Return a response whose turn is over as it ended, and store that. One that goes on is returned as it is."""
        entries = await self._log_of(row) if row.background else []
        if (finished := await self._finished(row, entries)).output is not None:  # readers of its log have had its end
            return finished
        run = await self.store.run(row.run_id, tenant=row.tenant)
        if run is None or self.logs.is_recording(row.id) or not await self.is_over(run):
            return row
        chunks, failure = await self.told(run)
        if row.background:
            rest = _rest_of(chunks, entries, is_whole=_tells_all(run, orjson.loads(row.request)))
            await self._end_log(row, run, entries, [*rest, ended(run.updated_s, failure)])
            return await self._finished(row, await self._log_of(row))
        answer = self.answer_of(row, now_s=lambda: run.updated_s)
        _write(row.id, answer, chunks, failure=failure, over=True)
        await self.keep(row, answer)
        return await self.store.response(row.id, tenant=row.tenant) or row

    async def _finished(self, row: StoredResponse, entries: Sequence[Chunk]) -> StoredResponse:
        """Return a background response as its log ends, and store that. Without an end it is returned as it is."""
        if not entries or (end := end_of(entries[-1])) is None:
            return row
        at_s, failure = end
        answer = self.answer_of(row, now_s=lambda: at_s)
        _write(row.id, answer, entries, failure=failure, over=True)
        await self.keep(row, answer)
        return await self.store.response(row.id, tenant=row.tenant) or row

    async def _log_of(self, row: StoredResponse) -> list[Chunk]:
        """Return all entries of a log."""
        entries: list[Chunk] = []
        while True:
            found = await self.store.answer_from(row.id, tenant=row.tenant, start=len(entries), limit=_BATCH)
            entries += map(orjson.loads, found)
            if len(found) < _BATCH:
                return entries

    async def _end_log(
        self, row: StoredResponse, run: StoredRun, entries: Sequence[Chunk], chunks: Sequence[Chunk]
    ) -> None:
        """Append the end of an answer whose worker did not write it, unless somebody has just done so."""
        if entries and end_of(entries[-1]) is not None:
            return
        answer = Recorded(response_id=row.id, tenant=row.tenant, fence=run.fence, start=len(entries))
        try:
            await self.logs.append(answer, chunks)
        except ConflictError:
            return


def _write(
    response_id: str, answer: ResponseAnswer, chunks: Sequence[Chunk], *, failure: GatewayError | None, over: bool
) -> None:
    """Write an answer from its chunks, for its Response object."""
    answer.read([chunk for chunk in chunks if end_of(chunk) is None])
    if failure is not None:
        answer.fail(failure, request_id=response_id)
    elif over:
        answer.end()


def _is_hidden(row: StoredResponse) -> bool:
    """Return whether a row only says that its response was deleted."""
    return row.output == b""


def _tells_all(run: StoredRun, facts: Json) -> bool:
    """Return whether the answer told of a run begins with its first text. Of one that waits it may be the question."""
    return run.state != "unknown" and (run.state != "awaiting_approval" or facts["shows_calls"])


def _rest_of(told: Sequence[Chunk], entries: Sequence[Chunk], *, is_whole: bool) -> Sequence[Chunk]:
    """Return the part of an answer that a log lacks. Readers know calls again by their ids."""
    if any(
        choice.get("finish_reason") for chunk in entries if not isinstance(chunk, str) for choice in _choices(chunk)
    ):
        return told[-1:]  # it may lack the tokens, which come last
    if not entries or not is_whole:
        return told
    said = "".join(chunk for chunk in told if isinstance(chunk, str))
    resumed = chat_chunks.event({"type": "run.resumed", "said": said})
    return [resumed, *(chunk for chunk in told if not isinstance(chunk, str))]


def _choices(chunk: Json) -> Sequence[Json]:
    return chunk.get("choices") or ()


def _question(approval: Approval, *, service: str | None) -> Json:
    """Return the request for an approval as the item that its response has."""
    return {
        "id": approval.id,
        "type": "mcp_approval_request",
        "server_label": service or OWN_LABEL,
        "name": approval.tool if service is None else approval.tool.removeprefix(f"{service}."),
        "arguments": approval.arguments,
    }


def items_of(row: StoredResponse) -> list[Json]:
    """Return the input items of a response, and its output items once it has ended."""
    items: list[Json] = orjson.loads(row.input)
    return items if not row.output else [*items, *orjson.loads(row.output)["output"]]


def not_found() -> GatewayError:
    """Return the error of a missing response. A response of another tenant gets the same answer."""
    return GatewayError("response_not_found", "There is no response with this id; 'store' false keeps none.")


def no_previous(response_id: str) -> GatewayError:
    """Return the error of a request that goes on from a response that is not there."""
    return GatewayError(
        "previous_response_not_found",
        f"Previous response with id '{response_id[:80]}' not found: send the whole input, or the id of a response that "
        "is stored.",
        param="previous_response_id",
    )
