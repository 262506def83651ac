"""Limits of a body without a length: it reserves tokens as it comes, and is refused in the middle."""

import asyncio
from contextlib import suppress

import pytest
from functional.several import CHAT, several
from functional.through import FINE, client_of, post_chunked
from gateways import until

from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import LAST_CHUNK, build_answer, build_chunk, serve
from tests.lanes.passthrough.observers.limited import BODY, OURS, keys


async def _status_after(client: Peer) -> int:
    """The status of a request whose last chunk is sent now, if it was not refused before."""
    with suppress(ConnectionError):
        await client.send(LAST_CHUNK)
    return (await client.read_response()).status


@pytest.mark.parametrize("by_model", [False, True])
@pytest.mark.parametrize("of", ["keys", "upstream", "models"])
async def test_chunked_body_reserves_tokens_chunk_by_chunk(of: str, *, by_model: bool) -> None:
    """Whose limit it is: a body without a length is refused in the middle, and the model never has it whole.

    One that is held, up to `retry.body`, reserves once it is whole.
    """
    limits, said = {"tokens_per_minute": 1000}, serve(build_answer(200, b'{"usage": {"prompt_tokens": 900}}'))
    settings: dict[str, object] = {"passthrough": {"by_model": by_model or of == "models"}, "keys": keys()}
    rules: dict[str, object] = {"retry": {"body": 10}}
    if of == "keys":
        settings["keys"] = keys(**limits)
    elif of == "models":
        settings["limits"] = {"models": {"*": limits}}
    else:
        rules["limits"] = limits
    async with several(said, said, settings=settings, **rules) as up, client_of(up.gateway) as client:
        await client.send(post_chunked(build_chunk(BODY), CHAT, OURS))
        await until(lambda: sum(len(one.connections) for one in up.endpoints))
        async with client_of(up.gateway) as other:
            await other.send(post_chunked(build_chunk(BODY), CHAT, OURS))
            await other.send(build_chunk(b" " * 3000))
            await client.send(build_chunk(b" " * 3000))
            ends = [await asyncio.wait_for(_status_after(one), 20) for one in (client, other)]
        assert sorted(ends) == [200, 429] and sum(up.counts) == 1


async def test_refusal_of_a_growing_body_reports_all_limits_of_the_request() -> None:
    """The model's limit refuses; the key's limit of requests is in the fields, too."""
    models = {"limits": {"models": {"*": {"tokens_per_minute": 1000}}}, "passthrough": {"by_model": True}}
    settings: dict[str, object] = {**models, "keys": keys(requests_per_minute=5)}
    async with several(serve(FINE), settings=settings, retry={"body": 10}) as up, client_of(up.gateway) as client:
        await client.send(post_chunked(build_chunk(BODY), CHAT, OURS))
        async with client_of(up.gateway) as other:
            await other.send(post_chunked(build_chunk(BODY), CHAT, OURS))
            await until(lambda: sum(len(one.connections) for one in up.endpoints) == 2)
            for one in (client, other):
                await one.send(build_chunk(b" " * 3000))
            reads = [asyncio.create_task(one.read_response()) for one in (client, other)]
            done, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
            refused = done.pop().result()
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)
    assert refused.status == 429
    assert refused.list_values(b"x-ratelimit-limit-requests") == [b"5"]
    assert refused.list_values(b"x-ratelimit-limit-tokens") == [b"1000"]
