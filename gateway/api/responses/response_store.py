"""Responses that are kept: as rows of the store from their end on, and before that by what the store has of their run.

1. A row with an output is the truth: nothing changes it any more.
2. Before that, the run is the truth. A response whose client left, or whose process died, is built from the record of
   its run when a client requests it.
3. Only a background response, and one that continues a stored run, has a row before its end. Others are under way in
   one worker (`under_way`), or only their run is on record.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import orjson

from gateway.aio.cooperative import run_aside
from gateway.api.responses.in_progress import OpenResponse, OpenResponses, get_run_error
from gateway.api.responses.response_rows import (
    build_added_items,
    build_missing_response_error,
    build_not_found_error,
    build_row,
    close_row,
    index_by_id,
    is_hidden,
    write,
)
from gateway.approvals.approvals import OF_RUN
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.journal import ConflictError, StoredRun
from gateway.contracts.storage.responses import StoredResponse
from gateway.contracts.storage.store import Json, Store, StoreError, UntoldError, UnwrittenError, build_unwritten_error
from gateway.contracts.tracing.tracer import Tracer
from gateway.dialects.responses.answer import ResponseAnswer
from gateway.dialects.responses.decisions import list_decided_approvals
from gateway.dialects.responses.ids import build_response_id, find_response_id, find_run_id
from gateway.dialects.responses.output.gateway_calls import build_question_item
from gateway.dialects.responses.response_metadata import ResponseFacts
from gateway.runs.answer_log import (
    AnswerLogs,
    RecordedAnswer,
    begins_with_first_text,
    build_end_entry,
    find_missing_chunks,
    has_end,
    parse_end_entry,
)
from gateway.runs.lease import build_interrupted_error
from gateway.runs.live_run import LiveRun

log = logging.getLogger("gateway")

#: Responses of one chain that a request reads.
CHAIN_LIMIT: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResponses:
    """The kept responses of one store, as one worker sees them.

    `is_over` returns whether the turn of a stored run is over, and `told` its answer then and its error, if any. That
    is for a client that is or is not shown calls, and that decides on these approvals. `service_of` returns the service
    of a tool by its inside name. `lose` ends the driving of a cancelled run by this worker.
    """

    store: Store
    logs: AnswerLogs
    clock: Clock
    is_over: Callable[[StoredRun], Awaitable[bool]]
    told: Callable[[StoredRun, bool, Sequence[str]], Awaitable[tuple[Sequence[Chunk], GatewayError | None]]]
    service_of: Callable[[str], str | None]
    lose: Callable[[str], None] = lambda _: None
    tracer: Tracer | None = None
    under_way: OpenResponses = field(default_factory=OpenResponses)

    async def find(self, response_id: str, *, tenant: str) -> StoredResponse:
        """Return a response as it is at this moment. Raises GatewayError (response_not_found), StoreError."""
        row = await self._find_current(response_id, tenant=tenant)
        if row is None:
            raise build_not_found_error()
        return row

    async def find_response_of_run(self, run: StoredRun) -> StoredResponse | None:
        """Return the response that a run began with. None: it has none, or it was deleted. Raises StoreError."""
        return await self._find_current(build_response_id(run.id), tenant=run.tenant)

    async def render_response(self, row: StoredResponse) -> bytes:
        """Return the Response object of a response, as JSON. Raises StoreError."""
        if row.output is not None:
            return row.output
        answer = self.build_answer(row)
        if (one := self.under_way.find(row.id, tenant=row.tenant)) is not None:
            told = one.run.transcript
            so_far = partial(write, row.id, answer, list(told.chunks), failure=None, over=False)
            await run_aside(so_far, more_bytes=told.size_bytes)
        elif row.background and (entries := await self.logs.list_entries(row.id, tenant=row.tenant)):
            write(row.id, answer, entries, failure=None, over=False)
        return orjson.dumps(answer.build_resource())

    async def waits(self, row: StoredResponse) -> bool:
        """Return whether a response that has ended waits for approvals of the run that it began. Raises StoreError."""
        pending = await self.store.list_approvals(tenant=row.tenant, run_id=row.run_id, state="pending", limit=OF_RUN)
        return any(approval.id.encode() in (row.output or b"") for approval in pending)

    async def has_own_run(self, row: StoredResponse) -> bool:
        """Return whether the run of a response is its key's own, and not one that it decided on. Raises StoreError."""
        run = await self.store.run(row.run_id, tenant=row.tenant)
        return run is None or run.caller == row.caller

    async def load_chain(self, response_id: str, *, tenant: str) -> Sequence[StoredResponse]:
        """Return a response and all before it, the oldest first.

        Raises GatewayError (previous_response_not_found, invalid_field), StoreError.
        """
        chain: list[StoredResponse] = []
        wanted: str | None = response_id
        while wanted is not None:
            further = list(await self.store.list_response_chain(wanted, tenant=tenant, limit=CHAIN_LIMIT))
            if not further or not further[-1].output:
                found = await self._find_current(wanted, tenant=tenant)
                further = [] if found is None else [found]
            if (gone := next((row.id for row in further if is_hidden(row)), None if further else wanted)) is not None:
                raise build_missing_response_error(response_id, gone)
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

    async def resolve_references(
        self, references: Sequence[tuple[str, str]], *, wanted: Sequence[str] = (), tenant: str
    ) -> Mapping[str, Json]:
        """Return the items that a request refers to, each pair a place and an id, by their ids.

        The items of `wanted` are among them if they are kept. Raises GatewayError (item_not_found), StoreError.
        """
        rows: dict[str, Mapping[str, Json]] = {}
        found: dict[str, Json] = {}
        for place, item_id in (*references, *(("", item_id) for item_id in wanted)):
            response_id = find_response_id(item_id) or ""
            if response_id and response_id not in rows:
                row = await self._find_current(response_id, tenant=tenant)
                rows[response_id] = {} if row is None else await index_by_id(row)
            item = rows.get(response_id, {}).get(item_id)
            if place and item is None:
                item = await self._load_question(item_id, place=place, tenant=tenant)
            if item is not None:
                found[item_id] = item
        return found

    async def _load_question(self, item_id: str, *, place: str, tenant: str) -> Json:
        """Return the request for an approval that a reference names. Raises GatewayError (item_not_found)."""
        approval = await self.store.get_approval(item_id.lower(), tenant=tenant)
        if approval is None:
            raise GatewayError(
                "item_not_found",
                "There is no item with this id; items of responses with 'store' false are not kept. Send the item "
                "itself.",
                param=f"{place}.id",
            )
        tool, service = approval.tool, self.service_of(approval.tool)
        return build_question_item(approval.id, tool=tool, service=service, arguments=approval.arguments)

    async def store_response(
        self, row: StoredResponse, *, adds: Sequence[tuple[str, bytes]] = (), takes_key_of: str | None = None
    ) -> None:
        """Store a response, with the items that it adds to its conversation.

        Raises GatewayError (store_full, store_uncertain), KeyTakenError.
        """
        now_s = self.clock.time()
        try:
            await self.store.put_response(row, adds=adds, takes_key_of=takes_key_of, now_s=now_s)
        except StoreError as error:
            raise build_unwritten_error(error, "The gateway cannot store the response; its log says why.") from None

    async def store_ended(self, row: StoredResponse, answer: ResponseAnswer) -> None:
        """Store a response that has ended, and with it what it adds to its conversation. Raises GatewayError."""
        one = self.under_way.find(row.id, tenant=row.tenant)
        if one is not None and one.is_stored:  # a client may have deleted it since
            return
        adds: Sequence[tuple[str, bytes]] = ()
        if row.conversation is not None and answer.status in ("completed", "incomplete"):
            adds = await run_aside(partial(build_added_items, row.input, answer.output), content=row.input)
        end = close_row(row, answer)
        with nullcontext() if one is None else one.track_storing(end):
            await self.store_response(end, adds=adds)

    def hold_response(self, row: StoredResponse, run: LiveRun, *, streams: bool) -> AbstractContextManager[None]:
        """Return what holds a response while a client reads it: it is found, and stored if the client leaves."""
        return self.under_way.hold_response(row, run, streams=streams, end=self._store_end)

    async def _store_end(self, one: OpenResponse) -> None:
        """Store a response whose run has ended before its client had all of it.

        One that its client saw fail is stored so. Another that failed is left to the record of its run, if that had an
        effect or waits. Otherwise a response whose client left is cancelled, and stored if the client has its id.
        Raises UnwrittenError.
        """
        run, failure = one.run, None
        if one.told is not None:
            with one.track_storing(one.told):
                await self.store_response(one.told)
            return
        if run.error is not None:
            goes_on = isinstance(run.error, UntoldError) or (
                run.marks.recorded and (run.marks.effects or run.marks.waits)
            )
            if goes_on or not one.streams:
                return
            failure = get_run_error(run)
        answer = self.build_answer(one.row)
        told = partial(write, one.row.id, answer, run.transcript.chunks, failure=failure, over=True)
        await run_aside(told, more_bytes=run.transcript.size_bytes)
        await self.store_ended(one.row, answer)

    async def store_cancelled(self, row: StoredResponse) -> None:
        """Store a background response whose run was cancelled, as far as its log goes. Raises GatewayError, StoreError.

        The worker that drove the run has lost it, so the end of the log is written here.
        """
        run = await self.store.run(row.run_id, tenant=row.tenant)
        if run is None:
            return
        failure = GatewayError("run_cancelled", "The response was cancelled.")
        entries = await self.logs.list_entries(row.id, tenant=row.tenant)
        await self._end_log(row, run, entries, [build_end_entry(self.clock.time(), failure)])
        await self._finish_from_log(row, await self.logs.list_entries(row.id, tenant=row.tenant))

    async def stop(self, row: StoredResponse) -> None:
        """End the run of a response that is answered here, unless the run is on record.

        Its first line may be under way: the store knows afterwards whether it is on record and waits for a person.
        """
        one = self.under_way.find(row.id, tenant=row.tenant)
        if one is not None:
            await one.run.end_unless_recorded(error=GatewayError("run_cancelled", "The response was deleted."))

    async def delete(self, row: StoredResponse) -> None:
        """Delete a response with its log. Raises GatewayError, StoreError.

        An empty row hides one that could come back: made of its run, or written by the worker that still answers it.
        """
        await self.store.delete_response(row.id, tenant=row.tenant)
        goes_on = find_run_id(row.id) != row.run_id  # the same request may join its answer
        goes_on |= self.under_way.find(row.id, tenant=row.tenant) is not None
        if goes_on or row.output is None or await self._load_response_of_run(row.id, tenant=row.tenant) is not None:
            nothing = replace(row, state="cancelled", previous_id=None, conversation=None, request=b"{}", input=b"[]")
            nothing = replace(nothing, created_s=self.clock.time(), output=b"", idempotency_key=None)
            await self.store_response(nothing)
            while (found := await self.store.get_response(row.id, tenant=row.tenant)) is not None and not is_hidden(
                found
            ):
                await self.store.delete_response(row.id, tenant=row.tenant)  # its worker stored the end meanwhile
                await self.store_response(nothing)

    def build_answer(self, row: StoredResponse, *, now_s: Callable[[], float] | None = None) -> ResponseAnswer:
        """Return the writer of a stored response's answer."""
        return ResponseAnswer(
            ResponseFacts.from_stored(orjson.loads(row.request)),
            response_id=row.id,
            created_s=row.created_s,
            now_s=now_s or self.clock.time,
            background=row.background,
        )

    def record_answer(
        self, row: StoredResponse, run: LiveRun, *, fence: int, start: int = 0, is_stored: bool = True
    ) -> None:
        """Record the answer of a background response from its run, behind the entries that are there, to its end.

        A response that is not stored yet is stored first, once the store works.
        """
        answer = RecordedAnswer(response_id=row.id, tenant=row.tenant, fence=fence, start=start)

        async def finish_response() -> None:
            await self._finish_from_log(row, await self.logs.list_entries(row.id, tenant=row.tenant))

        self.logs.record(
            answer, run, over=finish_response, first=None if is_stored else partial(self.store_response, row)
        )

    async def find_record_callback(self, run: StoredRun) -> Callable[[LiveRun], None] | None:
        """Return the function that records the answer of a run which this worker takes up. None: no client reads a log.

        The response is the one that the run answers now, which is not always the one that it began with.
        """
        while row := await self.store.find_newest_open_response(
            run.id, tenant=run.tenant
        ) or await self._store_lost_response(run):
            if not row.background:
                return None
            entries = await self.logs.list_entries(row.id, tenant=row.tenant)
            if not has_end(entries):
                return partial(self.record_answer, row, fence=run.fence, start=len(entries))
            await self._finish_from_log(row, entries)  # its worker died behind the end of the log
        return None

    async def _store_lost_response(self, run: StoredRun) -> StoredResponse | None:
        """Store the background response that a run began with, if its worker died before it did so."""
        if not orjson.loads(run.request).get("background"):
            return None
        response_id = build_response_id(run.id)
        if await self.store.get_response(response_id, tenant=run.tenant) is not None:
            return None
        row = await self._load_response_of_run(response_id, tenant=run.tenant)
        if row is not None:
            await self.store_response(row)
        return row

    async def close(self) -> None:
        """Wait until the output of the runs is stored. Call it once the runs of this worker have ended. Idempotent."""
        await self.under_way.close()
        await self.logs.close()

    async def _find_current(self, response_id: str, *, tenant: str) -> StoredResponse | None:
        """Return a response as it is at this moment. None: there is none. Raises StoreError."""
        one = self.under_way.find(response_id, tenant=tenant)
        row = await self.store.get_response(response_id, tenant=tenant)
        if one is not None:
            row = row or one.row
            row = row if one.told is None or row.output is not None else one.told
        elif row is None:
            row = await self._load_response_of_run(response_id, tenant=tenant)
        if row is None or is_hidden(row):
            return None
        return row if one is not None or row.output is not None else await self._finish_if_ended(row)

    async def _load_response_of_run(self, response_id: str, *, tenant: str) -> StoredResponse | None:
        """Return the response of the stored run that began with its request; None: there is none."""
        run_id = find_run_id(response_id)
        run = None if run_id is None else await self.store.run(run_id, tenant=tenant)
        return None if run is None else await run_aside(partial(build_row, run, response_id), content=run.request)

    async def _finish_if_ended(self, row: StoredResponse) -> StoredResponse:
        """Return a response whose turn is over as it ended, and store that if the store can.

        One that goes on is returned as it is.
        """
        entries = await self.logs.list_entries(row.id, tenant=row.tenant) if row.background else []
        if has_end(entries):  # readers of its log have had its end
            return await self._finish_from_log(row, entries)
        if self.logs.is_recording(row.id):
            return row
        run = await self.store.run(row.run_id, tenant=row.tenant)
        if run is None:
            answer = self.build_answer(row)
            write(row.id, answer, entries, failure=build_interrupted_error(row.run_id), over=True)
            return await self._store_ended(row, answer)
        if not await self.is_over(run):
            return row
        shows_calls = orjson.loads(row.request)["shows_calls"]
        chunks, failure = await self.told(run, shows_calls, list_decided_approvals(orjson.loads(row.input)))
        if row.background:
            if await self.store.get_response(row.id, tenant=row.tenant) is None:  # a log belongs to a stored one
                await self.store_response(row)
            rest = find_missing_chunks(chunks, entries, is_whole=begins_with_first_text(run, shows_calls=shows_calls))
            return await self._finish_from_log(
                row, await self._append_log_end(row, run, entries, [*rest, build_end_entry(run.updated_s, failure)])
            )
        answer = self.build_answer(row, now_s=lambda: run.updated_s)
        write(row.id, answer, chunks, failure=failure, over=True)
        return await self._store_ended(row, answer)

    async def _finish_from_log(self, row: StoredResponse, entries: Sequence[Chunk]) -> StoredResponse:
        """Return a background response as its log ends, and store that. Without an end it is returned as it is."""
        if not entries or (end := parse_end_entry(entries[-1])) is None:
            return row
        at_s, failure = end
        answer = self.build_answer(row, now_s=lambda: at_s)
        write(row.id, answer, entries, failure=failure, over=True)
        return await self._store_ended(row, answer)

    async def _store_ended(self, row: StoredResponse, answer: ResponseAnswer) -> StoredResponse:
        """Return a response as it has ended, and store it so, unless another worker just did or the store is full.

        Raises StoreError.
        """
        try:
            await self.store_ended(row, answer)
        except UnwrittenError as error:
            log.error("the response %s is shown and not stored: %s", row.id, error)
            return close_row(row, answer)
        return await self.store.get_response(row.id, tenant=row.tenant) or row

    async def _append_log_end(
        self, row: StoredResponse, run: StoredRun, entries: Sequence[Chunk], chunks: Sequence[Chunk]
    ) -> Sequence[Chunk]:
        """Append the end of an answer to its log if the store can, and return the log. Raises StoreError."""
        try:
            await self._end_log(row, run, entries, chunks)
        except StoreError as error:
            log.error("the response %s is shown, and its end is not stored: %s", row.id, error)
            return [*entries, *chunks]
        return await self.logs.list_entries(row.id, tenant=row.tenant)

    async def _end_log(
        self, row: StoredResponse, run: StoredRun, entries: Sequence[Chunk], chunks: Sequence[Chunk]
    ) -> None:
        """Append the end of an answer whose worker did not write it, unless another worker just did."""
        if has_end(entries):
            return
        answer = RecordedAnswer(response_id=row.id, tenant=row.tenant, fence=run.fence, start=len(entries))
        try:
            await self.logs.append(answer, chunks)
        except ConflictError:
            return
