"""The gateway stops, and its time for draining is over: what clients of the context lane get then."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from gateways import until

from tests.api.responses.answering import (
    CONVERSATIONS,
    GATEWAY,
    KEYS,
    Client,
    answering,
    elsewhere,
    folder_store,
    text_of,
)
from tests.e2e.models import calls, says
from tests.e2e.talking import desk

AT_ONCE = {"drain": "0s"}
RUNS = calls("file_operations", operation="write", path="new.txt", content="x")


async def stop(client: Client) -> None:
    await client.world.gateway.gateway.drain()


async def test_response_stream_ends_with_an_error_when_the_gateway_stops() -> None:
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
        row = await client.store.get_response(events.last["id"], tenant="acme")
        assert row is not None and row.state == events.last["status"] == "failed"
        assert orjson.loads(row.output or b"") == events.last
        assert await client.store.list_all_items(conversation, tenant="acme") == []


async def test_request_without_an_answer_gets_503_when_the_gateway_stops() -> None:
    """503, which SDKs send again by themselves."""
    async with answering(says(asyncio.Event()), limits=AT_ONCE, key="ann", **KEYS) as client:
        asked = asyncio.create_task(client.create())
        await until(lambda: client.world.model.asked)
        await stop(client)
        answer = await asked
        assert (answer.status, answer.error["code"]) == (503, "gateway_stopping")
        assert answer.headers["Retry-After"] == "1"


async def test_chat_stream_ends_with_an_error_when_the_gateway_stops() -> None:
    """As any that fails behind its beginning."""
    async with (
        answering(says("one ", asyncio.Event()), limits=AT_ONCE, key="ann", **KEYS) as client,
        client.world.streaming("Hi", headers=client.headers()) as stream,
    ):
        await stream.until_text("one ")
        await stop(client)
        assert (await stream.frame())["error"]["code"] == "gateway_stopping"


async def test_stored_run_remains_running_when_the_gateway_stops(tmp_path: Path) -> None:
    """The client gets no end that the next process would contradict."""
    answers = (RUNS, says("one ", asyncio.Event()))
    async with answering(*answers, limits=AT_ONCE, key="ann", **KEYS, tools=desk(tmp_path, write=True)) as client:
        async with client.streaming() as events:
            created = await events.until("response.created")
            await events.until("response.output_text.delta")
            await stop(client)
            await events.rest()
        assert "error" not in events.kinds and not events.done
        assert await client.store.get_response(created["response"]["id"], tenant="acme") is None
        run = await client.store.run(events.response.headers["X-Context-Run-Id"], tenant="acme")
        assert run is not None and run.state == "running"


@pytest.mark.parametrize("door", ["chat", "response", "stream"])
async def test_run_recorded_during_shutdown_forbids_a_client_retry(tmp_path: Path, door: str) -> None:
    """Its first line was being written: the next start makes the call, and a repeat would make it once more."""
    made, tools = tmp_path / "made", {"execute_command": {"cwd": str(tmp_path), "sandbox": "none"}}
    once = calls("execute_command", command=f"echo once >> {made}", risk_level="low")
    answers = (says("Hi."), once, says("Done."))
    async with answering(*answers, limits=AT_ONCE, tools=tools, **folder_store(tmp_path)) as client:
        await client.create()  # stores the secret of its tenant
        async with holding(client) as (line_waits, go):
            asking = asyncio.create_task(asked_at(door, client))
            await until(line_waits)
            stopping = asyncio.create_task(stop(client))
            await until(
                lambda: any(run._cancellation for run in client.world.gateway.gateway._state.runs._runs.values())
            )
            go()
            assert await asking == ("run_interrupted", "false" if door != "stream" else None)
            await stopping
        assert not made.exists()
        await client.world.gateway.gateway.close()
        async with elsewhere(client):
            await until(lambda: len(client.world.model.asked) == 3)
        assert made.read_text() == "once\n"


async def asked_at(door: str, client: Client) -> tuple[str, str | None]:
    """Ask for the call. Return the code of the error, and what the answer says of sending the request again."""
    if door == "stream":
        events = await client.stream("Go.", tools=[GATEWAY])
        assert "response.failed" not in events.kinds, "the next start would contradict it"
        return events.read[-1]["code"], None
    body = {"model": "m", "messages": [{"role": "user", "content": "Go."}]}
    path = "/context/v1/chat/completions"
    refused = await (client.post(body, path) if door == "chat" else client.create("Go.", tools=[GATEWAY]))
    assert refused.status == 422
    return refused.error["code"], refused.headers["x-should-retry"]


@asynccontextmanager
async def holding(client: Client) -> AsyncIterator[tuple[Callable[[], bool], Callable[[], None]]]:
    """Hold the thread that writes the store, as a disk that hangs does.

    Yields the functions that return whether a line waits for it, and that let it go.
    """
    store: Any = client.store
    begun, held = threading.Event(), threading.Event()
    holds = asyncio.ensure_future(store._write(lambda _: begun.set() or held.wait()))
    try:
        await until(begun.is_set)
        yield lambda: store._writer._jobs.qsize() > 0, held.set
    finally:
        held.set()
        await holds
