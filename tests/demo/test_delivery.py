"""How answers arrive: late, slowly, cut off, and while the client leaves."""

import asyncio
import logging
import time

import aiohttp
import orjson
import pytest
from yarl import URL

from gateway.demo.app import DemoModel
from gateway.demo.delivery import cut_first_half, pace_parts

from .talk import Json, chat, chat_stream, user

PATH = "/v1/chat/completions"
CLOCK_S = 0.002  # timers of an event loop may be this much early


async def test_slow_word_delays_the_response_head(client: aiohttp.ClientSession) -> None:
    """`slow S` holds back the head."""
    began_s = time.monotonic()
    async with client.post(PATH, json={"messages": [user("slow 0.1")], "stream": True}):
        assert time.monotonic() - began_s >= 0.1 - CLOCK_S


async def test_drip_word_pauses_between_events(client: aiohttp.ClientSession) -> None:
    """`drip MS` pauses between the events, which arrive one by one."""
    began_s = time.monotonic()
    events = await chat_stream(client, "drip 20 long 3")
    assert len(events) == 6 and time.monotonic() - began_s >= 5 * (0.02 - CLOCK_S)


async def test_first_event_arrives_without_the_drip_pause(client: aiohttp.ClientSession) -> None:
    """With a long pause between events the first one is there at once."""
    async with client.post(PATH, json={"messages": [user("drip 600000")], "stream": True}) as response:
        assert b'"role":"assistant"' in await asyncio.wait_for(response.content.readline(), 120)


async def test_cut_word_truncates_the_body(demo: DemoModel) -> None:
    """`cut` without a stream is a 200 with half of the body that Content-Length promises, then an end of file."""
    head, _, body = (await exchange(demo, {"messages": [user("cut hello")]})).partition(b"\r\n\r\n")
    promised = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
    assert head.startswith(b"HTTP/1.1 200 ") and len(body) == promised // 2


async def test_cut_word_truncates_the_stream(demo: DemoModel) -> None:
    """`cut` in a stream is a 200 with the first half of the events, then an end of file without the last chunk."""
    received = await exchange(demo, {"messages": [user("cut long 10")], "stream": True})
    assert received.startswith(b"HTTP/1.1 200 ") and b"Transfer-Encoding: chunked" in received
    assert b"word1" in received and b"word9" not in received
    assert received.endswith(b"\n\n\r\n") and b"\r\n0\r\n" not in received and b"[DONE]" not in received


async def exchange(demo: DemoModel, body: Json) -> bytes:
    """Everything the demo model sends on one connection until its end of file."""
    url, content = URL(demo.base_url), orjson.dumps(body)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(
        b"POST %b HTTP/1.1\r\nHost: demo\r\nContent-Length: %d\r\n\r\n%b" % (PATH.encode(), len(content), content)
    )
    try:
        return await asyncio.wait_for(reader.read(), 120)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_connection_stays_open_after_answers_and_errors(demo: DemoModel) -> None:
    """After whole answers and errors the connection serves on."""
    connector = aiohttp.TCPConnector(limit=1)
    made = 0

    async def count(*_: object) -> None:
        nonlocal made
        made += 1

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(count)
    async with aiohttp.ClientSession(demo.base_url, connector=connector, trace_configs=[trace]) as session:
        await chat(session, "hello")
        await chat_stream(session, "hello")
        async with session.post(PATH, json={"messages": [user("error 500")]}) as response:
            await response.read()
        await chat(session, "hello")
    assert made == 1


async def test_request_id_depends_only_on_the_request(client: aiohttp.ClientSession) -> None:
    """The request id depends on the request alone."""
    ids = []
    for prompt in ("a", "a", "b"):
        async with client.post(PATH, json={"messages": [user(prompt)]}) as response:
            ids.append(response.headers["x-request-id"])
    assert ids[0] == ids[1] != ids[2]


async def test_client_disconnect_logs_no_warning(
    client: aiohttp.ClientSession, demo: DemoModel, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that leaves in the middle is no error, and others are served."""
    for prompt in ("long 10000", "drip 50 long 100", "slow 600"):
        async with aiohttp.ClientSession(demo.base_url) as leaving:
            request = leaving.post(PATH, json={"messages": [user(prompt)], "stream": True})
            if prompt == "slow 600":
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(request.__aenter__(), 0.05)
            else:
                async with request as response:
                    await response.content.readline()
    await chat(client, "hello")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_paced_parts_keep_their_order() -> None:
    """Pacing changes nothing but the time; the first half never holds the end."""
    assert [part async for part in pace_parts("abc", gap_s=0)] == ["a", "b", "c"]
    assert (cut_first_half("abc"), cut_first_half("")) == ("a", "")
