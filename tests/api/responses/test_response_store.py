"""Kept responses: rows that are the truth, and what is made of the record of a run where there is no such row."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest
from gateways import until

from gateway.api.responses import response_store as module
from gateway.api.responses.response_store import KeptResponses
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.journal import StoredRun
from gateway.contracts.storage.responses import StoredConversation, StoredResponse
from gateway.contracts.storage.store import Json, StoreError
from gateway.dialects import chat_chunks as made
from gateway.dialects.responses.response_metadata import ResponseFacts
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.answer_log import AnswerLogs, RecordedAnswer, parse_end_entry
from gateway.runs.answer_log import build_end_entry as log_end
from gateway.runs.live import LiveRuns
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock
from tests.plugins.stores.records import approval, claimed, new, run
from tests.runs.living import Work, exchange, request_key

from .answering import kinds, text_of

HEX = "0123456789abcdef01234567"
RESPONSE, RUN = f"resp_{HEX}", f"run_{HEX}"
FACTS = ResponseFacts(fields={"model": "m"}).stored_json
INPUT = [{"id": "msg_1", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]
USAGE: Chunk = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}
WHOLE: Sequence[Chunk] = ("Hello", made.build_finish("stop"), USAGE)
CLIENT = {"api": "responses", "request": FACTS, "input": INPUT, "previous_id": None, "conversation": None}


class Full(SqliteStore):
    """The real store, which is full at times. The next response waits for `held`."""

    is_full = False
    held: asyncio.Event | None = None

    async def put_response(self, response: StoredResponse, **facts: Any) -> bool:
        self._fail()
        held, self.held = self.held, None
        if held is not None:
            await held.wait()
        return await super().put_response(response, **facts)

    async def append_answer(self, *args: Any, **facts: Any) -> None:
        self._fail()
        await super().append_answer(*args, **facts)

    def _fail(self) -> None:
        if self.is_full:
            raise StoreError("database or disk is full")


@dataclass
class Shelf:
    """The kept responses of a store in memory. `over` and `told` are what became of runs."""

    store: Full
    over: bool = True
    told: tuple[Sequence[Chunk], GatewayError | None] = (WHOLE, None)
    n_told: int = 0
    told_for: tuple[bool, list[str]] | None = None
    clock: ManualClock = field(default_factory=lambda: ManualClock(200.0))

    def __post_init__(self) -> None:
        self.kept = self.worker()

    def worker(self) -> KeptResponses:
        return KeptResponses(
            store=self.store,
            logs=AnswerLogs(self.store, clock=self.clock),
            clock=self.clock,
            is_over=self._is_over,
            told=self._told,
            service_of=lambda tool: "git.hub" if tool.startswith("git.hub.") else None,
        )

    async def find(self, response_id: str = RESPONSE, *, tenant: str = "acme") -> StoredResponse:
        return await self.kept.find(response_id, tenant=tenant)

    async def resource(self, response_id: str = RESPONSE) -> Json:
        found: Json = orjson.loads(await self.kept.render_response(await self.find(response_id)))
        return found

    async def append(self, *chunks: Chunk) -> None:
        there = await self.log()
        answer = RecordedAnswer(response_id=RESPONSE, tenant="acme", fence=0, start=len(there))
        await self.kept.logs.append(answer, chunks)

    async def log(self) -> list[Chunk]:
        entries = await self.store.list_answer_chunks(RESPONSE, tenant="acme", start=0, limit=1000)
        return [orjson.loads(entry) for entry in entries]

    async def _is_over(self, _: StoredRun) -> bool:
        return self.over

    async def _told(
        self, _: StoredRun, shows_calls: bool, decided: Sequence[str]
    ) -> tuple[Sequence[Chunk], GatewayError | None]:
        self.n_told += 1
        self.told_for = shows_calls, list(decided)
        return self.told


def row(response_id: str = RESPONSE, **changes: Any) -> StoredResponse:
    """An open response of the run."""
    facts: dict[str, Any] = {
        "tenant": "acme",
        "caller": "ann",
        "state": "in_progress",
        "created_s": 100.0,
        "run_id": RUN,
        "request": orjson.dumps(FACTS),
        "input": orjson.dumps(INPUT),
    }
    return StoredResponse(id=response_id, **{**facts, **changes})


def ended(response_id: str = RESPONSE, **changes: Any) -> StoredResponse:
    """One that has ended."""
    output = orjson.dumps({"id": response_id, "output": []})
    return row(response_id, **{"state": "completed", "output": output, **changes})


@asynccontextmanager
async def shelf(*rows: StoredResponse, client: Json | None = None, background: bool = False) -> AsyncIterator[Shelf]:
    """With the run, and these responses of it."""
    store = Full(":memory:")
    await store.open()
    try:
        request = {"body": {"messages": []}, "background": background}
        request |= {} if client is None else {"client": client}
        await store.write(new(run(RUN, request=orjson.dumps(request))))
        for one in rows:
            await store.put_response(one)
        yield Shelf(store)
    finally:
        await store.close()


async def code_of(work: Any) -> str:
    with pytest.raises(GatewayError) as refused:
        await work
    return refused.value.code


async def test_response_without_a_row_is_rebuilt_from_its_run() -> None:
    """Once: afterwards the row is the truth, also where the run is told otherwise."""
    async with shelf(client=CLIENT) as desk:
        first = await desk.resource()
        assert (first["status"], text_of(first), first["created_at"]) == ("completed", "Hello", 100)
        assert first["usage"]["total_tokens"] == 7 and first["completed_at"] == 100
        desk.told = ((), GatewayError("run_cancelled", "x"))
        assert await desk.resource() == first and desk.n_told == 1
        assert orjson.loads((await desk.find()).input)[0]["content"][0]["text"] == "Hi"


@pytest.mark.parametrize("client", [None, {"api": "another"}])
async def test_run_of_another_api_is_not_found_as_a_response(client: Json | None) -> None:
    """Chats, and responses with `store` false."""
    async with shelf(client=client) as desk:
        assert await code_of(desk.find()) == "response_not_found"


@pytest.mark.parametrize("response_id", ["", "resp_x", RUN, f"resp_{HEX.upper()}", f"{RESPONSE}0", "é"])
async def test_invalid_response_ids_are_not_found(response_id: str) -> None:
    """Nothing is found by half an id, or by that of the run."""
    async with shelf(client=CLIENT) as desk:
        assert await code_of(desk.find(response_id)) == "response_not_found"
        assert await code_of(desk.find(tenant="other")) == "response_not_found"


async def test_running_response_is_in_progress_and_not_stored() -> None:
    """Nothing of it is stored; later it is."""
    async with shelf(client=CLIENT) as desk:
        desk.over = False
        assert (await desk.resource())["status"] == "in_progress"
        assert await desk.store.get_response(RESPONSE, tenant="acme") is None
        desk.over = True
        assert (await desk.resource())["status"] == "completed"


async def test_failed_response_keeps_its_partial_output_as_incomplete() -> None:
    """The text on record is there, as incomplete."""
    async with shelf(client=CLIENT) as desk:
        desk.told = (("half",), GatewayError("upstream_error", "It broke."))
        failed = await desk.resource()
        assert (failed["status"], failed["error"]["type"], text_of(failed)) == ("failed", "upstream_error", "half")
        assert failed["output"][0]["status"] == "incomplete"


async def test_unfinished_row_is_completed_from_its_run() -> None:
    """One that continues a stored run."""
    async with shelf(row(run_id=RUN)) as desk:
        assert (await desk.resource())["status"] == "completed"
        assert (await desk.store.get_response(RESPONSE, tenant="acme") or row()).state == "completed"


# Background responses whose worker died before it wrote the end.


@pytest.mark.parametrize(
    "before",
    [
        (),
        ("Hel",),
        ("He", "llo"),
        ("Hello", made.build_finish("stop")),
        ("Hello", made.build_finish("stop"), USAGE),
    ],
)
async def test_incomplete_log_gets_its_missing_end(before: Sequence[Chunk]) -> None:
    """Nothing stands twice, nothing that was read changes, and the tokens are there."""
    async with shelf(row(background=True)) as desk:
        if before:
            await desk.append(*before)
        found = await desk.resource()
        assert (found["status"], text_of(found), len(found["output"])) == ("completed", "Hello", 1)
        assert found["usage"]["total_tokens"] == 7 and found["output"][0]["status"] == "completed"
        log = await desk.log()
        assert log[: len(before)] == list(before) and parse_end_entry(log[-1]) is not None
        assert await desk.resource() == found and await desk.log() == log


async def test_logged_client_calls_are_matched_by_id() -> None:
    """Those of the client by their ids."""
    call: Json = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    calls = made.build_call_chunks([call], reason="tool_calls")
    async with shelf(row(background=True)) as desk:
        await desk.append("Hello", *calls)
        desk.told = (("Hello", *calls, made.build_finish("tool_calls"), USAGE), None)
        assert kinds((await desk.resource())["output"]) == ["message", "function_call"]


async def test_logged_text_beyond_the_record_stays_incomplete() -> None:
    """It was read, so it stays; what the repeated call said follows."""
    async with shelf(row(background=True)) as desk:
        await desk.append("Hello and m")
        desk.told = (("Hello", made.build_finish("stop"), USAGE), None)
        found = await desk.resource()
        assert [(item["status"], text_of({"output": [item]})) for item in found["output"]] == [
            ("incomplete", "Hello and m")
        ]


@pytest.mark.parametrize("state", ["unknown", "awaiting_approval"])
async def test_approval_question_is_appended_to_the_earlier_text(state: str) -> None:
    """As a text it is no repetition of the answer."""
    async with shelf(row(background=True)) as desk:
        await desk.store.write(new(run("run_2", state=state)))
        await desk.store.put_response(row(background=True, run_id="run_2"))
        await desk.append("Well. ")
        desk.told = (("Shall it run?", made.build_finish("stop")), None)
        assert text_of(await desk.resource()) == "Well. Shall it run?"


async def test_a_failed_run_ends_its_log() -> None:
    """With its error; the text stays."""
    async with shelf(row(background=True)) as desk:
        await desk.append("Hel")
        desk.told = (("Hel",), GatewayError("agent_timeout", "It took too long."))
        found = await desk.resource()
        assert (found["status"], found["error"]["type"], text_of(found)) == ("failed", "agent_timeout", "Hel")


async def test_two_workers_end_a_log_once() -> None:
    """Both tell the same response."""
    async with shelf(row(background=True)) as desk:
        await desk.append("Hel")
        workers = [desk.worker() for _ in range(5)]
        found = await asyncio.gather(*(worker.find(RESPONSE, tenant="acme") for worker in workers))
        assert len([chunk for chunk in await desk.log() if parse_end_entry(chunk) is not None]) == 1
        assert text_of(await desk.resource()) == "Hello"
        assert {one.output for one in found} - {None} == {(await desk.find()).output}


async def test_response_is_rebuilt_from_a_complete_log() -> None:
    """Whose worker died before it stored that."""
    async with shelf(row(background=True)) as desk:
        await desk.append(*WHOLE, module.build_end_entry(150.0, None))
        desk.told = ((), GatewayError("internal_error", "nobody asks for this"))
        found = await desk.resource()
        assert (text_of(found), found["completed_at"]) == ("Hello", 150)


async def test_a_cancelled_response_ends_its_log() -> None:
    """At once, although the worker that had the run may write no more."""
    async with shelf(row(background=True)) as desk:
        await desk.append("Hel")
        await claimed(desk.store, "other")
        await desk.kept.store_cancelled(await desk.store.get_response(RESPONSE, tenant="acme") or row())
        found = await desk.resource()
        assert (found["status"], text_of(found), found["error"]) == ("cancelled", "Hel", None)
        assert parse_end_entry((await desk.log())[-1]) is not None


async def test_queued_response_becomes_in_progress_at_first_output() -> None:
    """Then it is in progress."""
    async with shelf(row(background=True, state="queued")) as desk:
        desk.over = False
        assert (await desk.resource())["status"] == "queued"
        await desk.append("Hel")
        assert ((await desk.resource())["status"], text_of(await desk.resource())) == ("in_progress", "Hel")


async def test_resumed_run_is_recorded_after_the_existing_output() -> None:
    """If its response is one of the background that has not ended."""
    async with shelf(row(background=True)) as desk:
        await desk.append("Hel")
        stored = await desk.store.run(RUN, tenant="acme")
        assert stored is not None
        record = await desk.kept.find_record_callback(stored)
        assert record is not None
        runs, work = LiveRuns(clock=Clock(ManualClock())), Work(effects=False)
        live = runs.begin(exchange(RUN), request_key(), work, detached=True)
        record(live)
        work.go.set()
        await until(lambda: not desk.kept.logs.is_recording(RESPONSE))
        assert (await desk.log())[0] == "Hel" and text_of(await desk.resource()) == "Helhihi"
        assert await desk.kept.find_record_callback(stored) is None
        await runs.close()


async def test_ended_log_is_not_extended_by_its_continuing_run() -> None:
    """The worker died between the end of the log and the row; the run answers a later response now, or none."""
    async with shelf(row(background=True)) as desk:
        await desk.append(*WHOLE, log_end(150.0, None))
        stored = await desk.store.run(RUN, tenant="acme")
        assert stored is not None and await desk.kept.find_record_callback(stored) is None
        found = await desk.store.get_response(RESPONSE, tenant="acme")
        assert found is not None and found.state == "completed"
        await desk.store.put_response(row("resp_2", background=True))
        assert await desk.kept.find_record_callback(stored) is not None


async def test_background_run_without_a_row_gets_a_row() -> None:
    """The worker died between the two. A run with a client needs none, and a deleted response stays so."""
    for background, others in ((True, ()), (False, ()), (True, (ended(output=b""),))):
        async with shelf(*others, client=CLIENT, background=background) as desk:
            stored = await desk.store.run(RUN, tenant="acme")
            assert stored is not None
            record = await desk.kept.find_record_callback(stored)
            found = await desk.store.get_response(RESPONSE, tenant="acme")
            assert (record is not None, bool(found and found.background)) == ((background and not others),) * 2


async def test_response_with_a_missing_run_is_reported_as_failed() -> None:
    """It does not wait for ever; the output so far stays."""
    for background in (True, False):
        async with shelf(row(run_id="run_gone", background=background, state="queued")) as desk:
            found = await desk.resource()
            assert (found["status"], found["error"]["type"]) == ("failed", "run_interrupted")
            assert await desk.resource() == found and desk.n_told == 0


async def test_run_is_replayed_with_the_options_of_its_request() -> None:
    """Whether that is shown calls, and on which approvals it decides."""
    decision = {"id": "mcpr_1", "type": "mcp_approval_response", "approval_request_id": "AP_1", "approve": True}
    shown = {**FACTS, "shows_calls": True}
    async with shelf(row(request=orjson.dumps(shown), input=orjson.dumps([*INPUT, decision]))) as desk:
        await desk.find()
        assert desk.told_for == (True, ["ap_1"])


async def test_response_is_completed_once_its_log_has_ended() -> None:
    """A follower that has read the end goes on from the response, although its worker still stores it."""
    async with shelf(row(background=True)) as desk:
        runs, work = LiveRuns(clock=Clock(ManualClock())), Work(effects=False)
        work.go.set()
        desk.store.held = stores = asyncio.Event()
        desk.kept.record_answer(
            row(background=True), runs.begin(exchange(RUN), request_key(), work, detached=True), fence=0
        )
        assert [chunks async for chunks in desk.kept.logs.read(RESPONSE, tenant="acme")]
        assert desk.kept.logs.is_recording(RESPONSE)
        assert ((await desk.resource())["status"], text_of(await desk.resource())) == ("completed", "hihi")
        assert len(await desk.kept.load_chain(RESPONSE, tenant="acme")) == 1
        stores.set()
        await until(lambda: not desk.kept.logs.is_recording(RESPONSE))
        await runs.close()


async def test_foreground_response_has_no_log() -> None:
    """Nothing is recorded of it."""
    async with shelf(row()) as desk:
        stored = await desk.store.run(RUN, tenant="acme")
        assert stored is not None and await desk.kept.find_record_callback(stored) is None


# Chains.


async def test_response_chain_is_loaded_in_order() -> None:
    """Of rows, and of responses that only their runs lead to."""
    rows = [ended(f"resp_{n}", previous_id=f"resp_{n - 1}" if n else None) for n in range(5)]
    async with shelf(*rows, client={**CLIENT, "previous_id": "resp_4"}) as desk:
        chain = await desk.kept.load_chain(RESPONSE, tenant="acme")
        assert [one.id for one in chain] == [*(one.id for one in rows), RESPONSE]
        assert chain[-1].output is not None


@pytest.mark.parametrize(("limit", "fits"), [(5, True), (4, False)])
async def test_response_chain_over_the_limit_is_refused(
    monkeypatch: pytest.MonkeyPatch, limit: int, fits: bool
) -> None:
    """Behind which it is to be compacted."""
    monkeypatch.setattr(module, "CHAIN_LIMIT", limit)
    rows = [ended(f"resp_{n}", previous_id=f"resp_{n - 1}" if n else None) for n in range(5)]
    async with shelf(*rows) as desk:
        if fits:
            assert len(await desk.kept.load_chain("resp_4", tenant="acme")) == 5
        else:
            assert await code_of(desk.kept.load_chain("resp_4", tenant="acme")) == "invalid_field"


async def test_response_chain_with_a_missing_link_is_refused() -> None:
    """One that is missing, deleted or another tenant's; one that goes on is told with its id."""
    rows = [ended("resp_0", tenant="other"), ended("resp_1", previous_id="resp_0")]
    async with shelf(*rows, row(background=True), client=CLIENT) as desk:
        assert await code_of(desk.kept.load_chain("resp_1", tenant="acme")) == "previous_response_not_found"
        desk.over = False
        assert await code_of(desk.kept.load_chain(RESPONSE, tenant="acme")) == "invalid_field"
        await desk.kept.delete(await desk.find())
        assert await code_of(desk.kept.load_chain(RESPONSE, tenant="acme")) == "previous_response_not_found"


# What is written.


async def test_a_deleted_response_stays_deleted() -> None:
    """Although its run is on record, and its worker writes its end afterwards."""
    for one in (None, row(), ended(), row(background=True)):
        async with shelf(*(() if one is None else (one,)), client=CLIENT) as desk:
            found = await desk.store.get_response(RESPONSE, tenant="acme") or await desk.find()
            await desk.kept.delete(found)
            answer = desk.kept.build_answer(found)
            answer.build_whole(WHOLE)
            await desk.kept.store_ended(found, answer)
            assert await code_of(desk.find()) == "response_not_found"
            hidden = await desk.store.get_response(RESPONSE, tenant="acme")
            assert hidden is not None and (hidden.request, hidden.input) == (b"{}", b"[]")


async def test_deleting_a_response_without_stored_run_removes_it_completely() -> None:
    """There is nothing that could bring it back."""
    response_id = "resp_" + "0" * 24
    async with shelf(ended(response_id, run_id="run_" + "0" * 24)) as desk:
        await desk.kept.delete(await desk.find(response_id))
        assert await desk.store.get_response(response_id, tenant="acme") is None


async def test_deleted_response_sharing_an_earlier_answer_stays_deleted() -> None:
    """A request that joined the same answer would store it again. Its key is free."""
    response_id = "resp_" + "0" * 24
    async with shelf(ended(response_id, idempotency_key="k")) as desk:
        await desk.kept.delete(await desk.find(response_id))
        with pytest.raises(GatewayError, match="no response with this id"):
            await desk.find(response_id)
        await desk.kept.store_response(row(response_id, idempotency_key="k"))
        with pytest.raises(GatewayError, match="no response with this id"):
            await desk.find(response_id)
        assert await desk.store.find_response_with_key("k", tenant="acme", caller="ann") is None


@pytest.mark.parametrize(("finish", "n_items"), [("stop", 2), ("length", 2), (None, 0)])
async def test_conversation_gets_each_successful_answer_once(finish: str | None, n_items: int) -> None:
    """Whole or cut by the model's limit; nothing of an answer that failed. Twice is once."""
    async with shelf() as desk:
        conversation = StoredConversation(id="conv_1", tenant="acme", created_s=1.0, metadata=b"{}")
        await desk.store.put_conversation(conversation, now_s=1.0)
        draft = row(conversation="conv_1")
        answer = desk.kept.build_answer(draft)
        if finish is None:
            answer.fail(GatewayError("upstream_error", "x"), request_id="")
        else:
            answer.build_whole(["Hello", made.build_finish(finish)])
        for _ in range(2):
            await desk.kept.store_ended(draft, answer)
        assert len(await desk.store.list_all_items("conv_1", tenant="acme")) == n_items


async def test_full_store_fails_the_response_without_partial_rows() -> None:
    """The client must not take its response for stored."""
    async with shelf() as desk:
        draft = row(conversation="conv_1")
        answer = desk.kept.build_answer(draft)
        answer.build_whole(WHOLE)
        await desk.store.put_conversation(
            StoredConversation(id="conv_1", tenant="acme", created_s=1.0, metadata=b"{}"), now_s=1.0
        )
        desk.store.is_full = True
        assert await code_of(desk.kept.store_ended(draft, answer)) == "store_full"
        assert await desk.store.get_response(RESPONSE, tenant="acme") is None
        assert await desk.store.list_all_items("conv_1", tenant="acme") == []
        desk.store.is_full = False
        await desk.kept.store_ended(draft, answer)
        assert len(await desk.store.list_all_items("conv_1", tenant="acme")) == 2


@pytest.mark.parametrize("background", [False, True])
async def test_full_store_still_serves_the_response_and_stores_it_later(background: bool) -> None:
    """A read needs no write; the response is stored once the store can."""
    for before in ((), ("Hel",), WHOLE, (*WHOLE, log_end(150.0, None))) if background else ((),):
        async with shelf(row(background=background)) as desk:
            if before:
                await desk.append(*before)
            desk.store.is_full = True
            found = await desk.resource()
            assert (found["status"], text_of(found), await desk.log()) == ("completed", "Hello", list(before))
            assert [one.id for one in await desk.kept.load_chain(RESPONSE, tenant="acme")] == [RESPONSE]
            desk.store.is_full = False
            assert (await desk.resource())["output"] == found["output"]
            assert (await desk.store.get_response(RESPONSE, tenant="acme") or row()).state == "completed"


async def test_unfinished_run_is_stored_only_by_its_driving_worker() -> None:
    """That worker may still send it; for others the response goes on, and is stored when no end can come any more."""
    async with shelf(client=CLIENT) as desk:
        desk.over = False
        assert (await desk.resource())["status"] == "in_progress"
        assert await desk.store.get_response(RESPONSE, tenant="acme") is None
        thought = {"choices": [{"index": 0, "delta": {"reasoning_content": "Hm."}}]}
        answer = desk.kept.build_answer(row())
        answer.build_whole([thought, *WHOLE])
        await desk.kept.store_ended(row(), answer)
        assert kinds((await desk.resource())["output"]) == ["reasoning", "message"]


async def test_approval_request_item_names_its_service_and_tool() -> None:
    """By the name that it has there."""
    async with shelf() as desk:
        for number, tool, named in (
            (1, "file_operations", ("gateway", "file_operations")),
            (2, "git.hub.issue.close", ("git.hub", "issue.close")),
        ):
            one = approval(f"ap_{number}", run_id=RUN, tool=tool)
            await desk.store.write(new(run(f"run_{number}"), approvals=(replace(one, run_id=f"run_{number}"),)))
            found = await desk.kept.resolve_references([("input[0]", f"AP_{number}")], tenant="acme")
            item = found[f"AP_{number}"]
            assert (item["server_label"], item["name"], item["id"]) == (*named, f"ap_{number}")
