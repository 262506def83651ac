"""The gateway stops, and its time for draining is over: what clients of the context lane get then."""

import asyncio
from pathlib import Path

import orjson
from gateways import until

from tests.api.responses.answering import CONVERSATIONS, KEYS, Client, answering, text_of
from tests.e2e.models import calls, says
from tests.e2e.talking import desk

AT_ONCE = {"drain": "0s"}
RUNS = calls("file_operations", operation="write", path="new.txt", content="x")


async def stop(client: Client) -> None:
    await client.world.gateway.gateway.drain()


async def test_a_stream_of_a_response_ends_with_an_error() -> None:
    """With its last events, and the response is stored so; its conversation gets nothing."""
    async with answering(says("one ", asyncio.Event()), limits=AT_ONCE, key="ann", **KEYS) as client:
        conversation = (await client.post({}, CONVERSATIONS)).json["id"]
        async with client.streaming("Hi", conversation=conversation) as events:
            await events.until("response.output_text.delta")
            await stop(client)
            await events.rest()
        assert events.kinds[-2:] == ["error", "response.failed"] and events.done
        assert events.numbers == list(range(len(events.read)))
        assert events.read[-2]["code"] == "gateway_stopping" and text_of(events.last) == "one "
        row = await client.store.response(events.last["id"], tenant="acme")
        assert row is not None and row.state == events.last["status"] == "failed"
        assert orjson.loads(row.output or b"") == events.last
        assert await client.store.all_items(conversation, tenant="acme") == []


async def test_an_answer_that_has_not_begun_is_an_error_to_send_again() -> None:
    """503, which SDKs send again by themselves."""
    async with answering(says(asyncio.Event()), limits=AT_ONCE, key="ann", **KEYS) as client:
        asked = asyncio.create_task(client.create())
        await until(lambda: client.world.model.asked)
        await stop(client)
        answer = await asked
        assert (answer.status, answer.error["code"]) == (503, "gateway_stopping")
        assert answer.headers["Retry-After"] == "1"


async def test_a_chat_stream_ends_with_an_error() -> None:
    """As any that fails behind its beginning."""
    async with (
        answering(says("one ", asyncio.Event()), limits=AT_ONCE, key="ann", **KEYS) as client,
        client.world.streaming("Hi", headers=client.headers()) as stream,
    ):
        await stream.until_text("one ")
        await stop(client)
        assert (await stream.frame())["error"]["code"] == "gateway_stopping"


async def test_a_run_on_record_is_cut_and_goes_on(tmp_path: Path) -> None:
    """The client gets no end that the next process would contradict."""
    answers = (RUNS, says("one ", asyncio.Event()))
    async with answering(*answers, limits=AT_ONCE, key="ann", **KEYS, tools=desk(tmp_path, write=True)) as client:
        async with client.streaming() as events:
            created = await events.until("response.created")
            await events.until("response.output_text.delta")
            await stop(client)
            await events.rest()
        assert "error" not in events.kinds and not events.done
        assert await client.store.response(created["response"]["id"], tenant="acme") is None
        run = await client.store.run(events.response.headers["X-Context-Run-Id"], tenant="acme")
        assert run is not None and run.state == "running"
