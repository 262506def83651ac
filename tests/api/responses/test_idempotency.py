"""Requests with an Idempotency-Key that come again: the response is the same as long as it is stored."""

import asyncio
from pathlib import Path

import pytest

from gateway.contracts.storage.store import Json
from tests.e2e.models import Answer, native, refuses, says
from tests.e2e.talking import CHAT, Completed, desk

from .answering import (
    CONVERSATIONS,
    GATEWAY,
    RESPONSES,
    Client,
    Events,
    answering,
    elsewhere,
    folder_store,
    kinds,
    text_of,
)
from .test_creating import RUNS, WEATHER
from .test_decisions import asked, decision, write

KEY = {"Idempotency-Key": "k1"}


def shape(events: Events) -> list[Json]:
    """The events behind the first two, but for the response in the last one."""
    return [{**event, "response": None} for event in events.read[2:]]


@pytest.mark.parametrize("background", [False, True])
async def test_repeated_request_gets_its_stored_response(background: bool) -> None:
    """The same one, with one turn in the conversation and one call of the model; another body is refused."""
    async with answering(says("one"), says("two")) as client:
        conversation = (await client.post({}, CONVERSATIONS)).json["id"]
        fields: Json = {"conversation": conversation, "background": background}
        first = (await client.create("1", headers=KEY, **fields)).json
        whole = await client.until(first["id"], "completed")
        for _ in range(2):
            again = await client.create("1", headers=KEY, **fields)
            assert again.json == whole and text_of(whole) == "one"
            assert again.headers["X-Context-Run-Id"] == "run_" + first["id"].removeprefix("resp_")
        for said, others in (("2", fields), ("1", {**fields, "temperature": 1}), ("1", {**fields, "stream": True})):
            refused = await client.create(said, headers=KEY, **others)
            assert (refused.status, refused.error["code"]) == (409, "idempotency_mismatch")
        items = (await client.get(conversation, "/items", path=CONVERSATIONS)).json["data"]
        assert len(items) == 2 and len(client.world.model.asked) == 1
        assert (await client.create("1", headers={"Idempotency-Key": "k2"}, **fields)).json["id"] != first["id"]


async def test_repeated_stream_gets_the_same_events(tmp_path: Path) -> None:
    """Each text in one piece, as the model said it here; those of the background are read from their log."""
    answers: tuple[Answer, ...] = (RUNS, says("one"), native(("get_weather", {"city": "Oslo"})), says("t", "wo"))
    async with answering(*answers, **folder_store(tmp_path), tools=desk(tmp_path, write=True)) as client:
        async with elsewhere(client) as there:
            for said, tools in (("1", [GATEWAY]), ("2", [WEATHER])):
                fields: Json = {"headers": {"Idempotency-Key": said}, "tools": tools}
                first, again = await client.stream(said, **fields), await there.stream(said, **fields)
                assert shape(again) == shape(first) and again.done and again.numbers == first.numbers
                assert again.last == first.last and again.read[0]["response"]["id"] == first.last["id"]
            first = await client.stream("3", headers=KEY, background=True)
            for one in (client, there):
                assert (await one.stream("3", headers=KEY, background=True)).raw == first.raw
        assert (tmp_path / "work" / "new.txt").read_text() == "x" and len(client.world.model.asked) == 4


async def test_repeated_request_is_answered_by_another_worker(tmp_path: Path) -> None:
    """While the first one answers it, and after that worker has stopped."""
    gate = asyncio.Event()
    async with answering(says("one ", gate, "two"), **folder_store(tmp_path)) as client:
        async with elsewhere(client) as there, client.streaming("1", headers=KEY) as first:
            await first.until("response.output_text.delta")
            async with there.streaming("1", headers=KEY) as second:
                await second.until("response.in_progress")
                assert second.read[0]["response"]["id"] == first.read[0]["response"]["id"]
                gate.set()
                await asyncio.gather(first.rest(), second.rest())
            assert second.last["id"] == first.last["id"] and text_of(second.last) == text_of(first.last) == "one two"
        await client.world.gateway.gateway.close()
        async with elsewhere(client) as after:
            assert (await after.stream("1", headers=KEY)).last == first.last
            refused = await after.create("2", headers=KEY)
            assert (refused.status, refused.error["code"]) == (409, "idempotency_mismatch")
        assert len(client.world.model.asked) == 1


async def test_idempotency_key_of_a_deleted_response_starts_a_new_response() -> None:
    """The request begins anew then."""
    async with answering(says("one"), says("two")) as client:
        first = (await client.create("1", headers=KEY)).json
        assert (await client.delete(first["id"])).status == 200
        again = (await client.create("1", headers=KEY)).json
        assert again["id"] != first["id"] and text_of(again) == "two"
        assert (await client.create("1", headers=KEY)).json == again


async def test_failed_or_cancelled_request_can_be_repeated() -> None:
    """If nothing was done: an error of the model, and a client that left."""
    gate = asyncio.Event()
    async with answering(refuses(400), says("one ", gate), says("two")) as client:
        assert (await client.create("1", headers=KEY, stream=True)).status == 400
        async with client.streaming("1", headers=KEY) as broken:
            await broken.until("response.output_text.delta")
        left = broken.read[0]["response"]["id"]
        await client.until(left, "cancelled")
        events = await client.stream("1", headers=KEY)
        assert text_of(events.last) == "two" and events.last["id"] != left
        assert (await client.stream("1", headers=KEY)).last == events.last


async def same_at_once(client: Client, there: Client, path: str, body: Json, *, key: str) -> list[Completed]:
    """The same request to two workers; whoever is told to sends it again, as SDKs do."""

    async def asked(one: Client) -> Completed:
        while (answer := await one.post(body, path, headers={"Idempotency-Key": key})).status == 409:
            assert answer.error["code"] == "idempotency_in_use" and answer.headers["Retry-After"] == "1"
        return answer

    return list(await asyncio.gather(asked(client), asked(there)))


@pytest.mark.parametrize("background", [False, True])
async def test_concurrent_equal_requests_on_two_workers_create_one_response(tmp_path: Path, background: bool) -> None:
    """Before the run of the first is on record: one response, and one turn in the conversation."""
    n_pairs = 10
    async with answering(*[says("one")] * n_pairs, **folder_store(tmp_path)) as client, elsewhere(client) as there:
        conversation = (await client.post({}, CONVERSATIONS)).json["id"]
        body: Json = {"model": "m", "input": "1", "conversation": conversation, "background": background}
        for n in range(n_pairs):
            first, second = await same_at_once(client, there, RESPONSES, body, key=f"k{n}")
            assert first.json["id"] == second.json["id"]
            await client.until(first.json["id"], "completed")
        items = (await client.get(conversation, "/items?limit=100", path=CONVERSATIONS)).json["data"]
        assert len(client.world.model.asked) == n_pairs and len(items) == 2 * n_pairs


@pytest.mark.parametrize("background", [False, True])
async def test_a_decision_with_a_key_has_one_response(tmp_path: Path, *, background: bool) -> None:
    """In every worker, at once and later, and after a restart. It is deleted like any other."""
    gate = asyncio.Event()
    tools = desk(tmp_path, write=True)
    answers: tuple[Answer, ...] = (write(), says("Written.", before=gate))
    async with answering(*answers, **folder_store(tmp_path), tools=tools) as client, elsewhere(client) as there:
        conversation = (await client.post({}, CONVERSATIONS)).json["id"]
        fields: Json = {"conversation": conversation, "tools": [GATEWAY]}
        _, question = await asked(client, **fields)
        fields = {**fields, "background": background, "headers": KEY}
        sent = [asyncio.create_task(one.create([decision(question)], **fields)) for one in (client, there) * 2]
        await client.world.model.upstream.wait_requests(2)
        gate.set()
        ids = {(await one).json["id"] for one in sent}
        whole = await client.until(*ids, "completed")
        for one in (client, there):
            assert (await one.create([decision(question)], **fields)).json == whole
            for body in ([decision(question, approve=False)], "Something else."):
                refused = await one.create(body, **fields)
                assert (refused.status, refused.error["code"]) == (409, "idempotency_mismatch")
        items = (await client.get(conversation, "/items?order=asc", path=CONVERSATIONS)).json["data"]
        assert kinds(items)[-3:] == ["mcp_approval_response", "mcp_call", "message"] and len(items) == 6
        async with elsewhere(client) as after:
            assert (await after.create([decision(question)], **fields)).json == whole
            assert (await after.delete(whole["id"])).status == 200
            anew = (await after.create([decision(question)], **fields)).json["id"]
            assert anew != whole["id"] and (await after.get(whole["id"])).status == 404
        for one in (client, there):
            await one.until(anew, "completed")
            again = (await one.create([decision(question)], **fields)).json
            assert again["id"] == anew and text_of(again) == "Written."
        assert len(client.world.model.asked) == 2


async def test_response_deleted_while_running_frees_its_idempotency_key(tmp_path: Path) -> None:
    """In the worker that drives it still, as another one deleted it, and in all others from then on."""
    gate = asyncio.Event()
    answers: tuple[Answer, ...] = (says("one ", gate), says("two"))
    async with answering(*answers, **folder_store(tmp_path)) as client, elsewhere(client) as there:
        first = (await client.create("1", headers=KEY, background=True)).json["id"]
        await client.world.model.upstream.wait_requests(1)
        assert (await there.delete(first)).status == 200
        anew = await client.create("1", headers=KEY, background=True)
        assert anew.status == 200 and anew.json["id"] != first, anew.json
        whole = await client.until(anew.json["id"], "completed")
        for one in (there, client):
            assert (await one.create("1", headers=KEY, background=True)).json == whole and text_of(whole) == "two"


async def test_waiting_idempotent_request_must_retry_after_its_response_is_deleted(tmp_path: Path) -> None:
    """The request asked another worker for the answer that the first one gets, and begins anew then."""
    gate = asyncio.Event()
    answers: tuple[Answer, ...] = (says("one ", gate), says("two"))
    async with answering(*answers, **folder_store(tmp_path)) as client, elsewhere(client) as there:
        async with client.streaming("1", headers=KEY) as first, there.streaming("1", headers=KEY) as second:
            await first.until("response.output_text.delta")
            await second.until("response.in_progress")
            response_id = first.read[0]["response"]["id"]
            assert (await there.delete(response_id)).status == 200
            assert (await second.until("error"))["code"] == "idempotency_in_use"
            assert (await second.rest()).last["id"] == response_id
        again = await there.stream("1", headers=KEY)
        assert text_of(again.last) == "two" and again.last["id"] != response_id


async def test_concurrent_chats_on_two_workers_run_calls_once(tmp_path: Path) -> None:
    """Nor its model: the run is on record before, and the other request gets its answer."""
    gate = asyncio.Event()
    answers: tuple[Answer, ...] = (RUNS.but(before=gate), says("Done."))
    tools = desk(tmp_path, write=True)
    async with answering(*answers, **folder_store(tmp_path), tools=tools) as client, elsewhere(client) as there:
        body: Json = {"model": "m", "messages": [{"role": "user", "content": "1"}]}
        asking = asyncio.create_task(same_at_once(client, there, CHAT, body, key="k1"))
        await client.world.model.upstream.wait_requests(1)
        gate.set()
        first, second = await asking
        assert first.text == second.text == "Done."
        assert first.headers["X-Context-Run-Id"] == second.headers["X-Context-Run-Id"]
        assert len(client.world.model.asked) == 2


async def test_a_chat_with_a_key_has_one_answer(tmp_path: Path) -> None:
    """Without a tool, too: in every worker, and after a restart. Another request with the key is refused."""
    body: Json = {"model": "m", "messages": [{"role": "user", "content": "1"}]}
    async with answering(says("one"), **folder_store(tmp_path)) as client, elsewhere(client) as there:
        first = await client.post(body, CHAT, headers=KEY)
        await client.world.gateway.gateway.close()
        async with elsewhere(client) as after:
            for one in (there, after):
                again = await one.post(body, CHAT, headers=KEY)
                assert again.status == 200 and again.headers["X-Context-Run-Id"] == first.headers["X-Context-Run-Id"]
                assert "one" in again.text
                refused = await one.post({**body, "temperature": 0}, CHAT, headers=KEY)
                assert (refused.status, refused.error["code"]) == (409, "idempotency_mismatch")
        assert len(client.world.model.asked) == 1


async def test_failed_chat_with_a_key_can_be_repeated() -> None:
    """With the key of the one that came to nothing."""
    body: Json = {"model": "m", "messages": [{"role": "user", "content": "1"}]}
    async with answering(refuses(400), says("two")) as client:
        assert (await client.post(body, CHAT, headers=KEY)).status == 400
        for _ in range(2):
            assert "two" in (await client.post(body, CHAT, headers=KEY)).text
