"""An upstream that fails after a tool has run: the model is asked again, or the run waits, and goes on from there."""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest
from gateways import until_read

from .models import CUT, Answer, Json, calls, refuses, says
from .talking import World, desk, talking

WRITE = calls("file_operations", operation="write", path="new.txt", content="x")
RAN = 'gateway_tool_calls_total{outcome="ok",tool="file_operations"}'
DONE = says("Written.")
LOST = says(CUT)  # the connection ends before a word


def soon(status: int) -> Answer:
    """An error that wants to be tried again at once."""
    return refuses(status, "busy").but(headers=(("retry-after-ms", "1"),))


async def ran_once(world: World) -> None:
    assert await world.counted(RAN) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failures", [[soon(429)], [soon(500), soon(503)], [soon(429)] * 5])
async def test_transient_model_failure_in_a_later_round_is_retried(
    failures: list[Answer], tmp_path: Path, *, stream: bool
) -> None:
    """The client sees nothing of it, and no tool runs twice."""
    async with talking(WRITE, *failures, DONE, tools=desk(tmp_path, write=True)) as world:
        if stream:
            streamed = await world.stream("Write.")
            assert (streamed.text, streamed.finishes) == ("Written.", ["stop"])
        else:
            assert (await world.chat("Write.")).text == "Written."
        await ran_once(world)
        assert await world.counted("gateway_model_retries_total") == len(failures)
        assert world.model.asked[1]["messages"] == world.model.asked[-1]["messages"]


async def test_dropped_connection_in_a_later_round_is_retried(tmp_path: Path) -> None:
    """After half a second the model is asked again."""
    async with talking(WRITE, LOST, DONE, tools=desk(tmp_path, write=True)) as world:
        assert (await world.chat("Write.")).text == "Written."
        await ran_once(world)


async def test_first_round_failure_is_returned_to_the_client(tmp_path: Path) -> None:
    """Nothing has been done."""
    async with talking(soon(429), tools=desk(tmp_path, write=True)) as world:
        answer = await world.chat("Write.")
        assert (answer.status, len(world.model.asked)) == (429, 1)


@pytest.mark.parametrize("failure", [says("Hel", CUT), refuses(401), refuses(403)])
@pytest.mark.parametrize("stream", [False, True])
async def test_lasting_model_failure_parks_the_run(failure: Answer, tmp_path: Path, *, stream: bool) -> None:
    """The error says how it goes on: the same request does, and no tool runs twice."""
    said = WRITE.but(pieces=("I will write.\n", *WRITE.pieces))
    async with talking(said, failure, DONE, tools=desk(tmp_path, write=True)) as world:
        if stream:
            broken = await world.stream("Write.")
            error = json.loads(broken.events[-1])["error"]
            run_id = broken.response.headers["X-Context-Run-Id"]
        else:
            answer = await world.chat("Write.")
            assert (answer.status, answer.headers["x-should-retry"]) == (
                failure.status if failure.content else 422,
                "false",
            )
            error, run_id = answer.error, answer.headers["x-request-id"]
        assert error["code"] in ("upstream_error", "upstream_refused") and f"runs resume {run_id}" in error["message"]
        kept = await world.run(run_id)
        assert kept["state"] == "awaiting_client" and kept["error"]
        again = (await world.stream("Write.")).text if stream else (await world.chat("Write.")).text
        assert again == "I will write.\nWritten."
        await ran_once(world)
        assert (await world.run(run_id, state="completed"))["error"] is None


@pytest.mark.parametrize("header", [{"x-stainless-retry-count": "1"}, {"Idempotency-Key": "k"}])
async def test_repeated_request_with_retry_header_resumes_the_run(header: dict[str, str], tmp_path: Path) -> None:
    """As one that does not."""
    async with talking(WRITE, refuses(401), DONE, tools=desk(tmp_path, write=True)) as world:
        first = await world.chat("Write.", headers={k: v for k, v in header.items() if k == "Idempotency-Key"})
        assert first.status == 401
        assert (await world.chat("Write.", headers=header)).text == "Written."
        await ran_once(world)


async def test_operator_resumes_a_parked_run(tmp_path: Path) -> None:
    """Without the client, who gets the answer when it comes back."""
    async with talking(WRITE, refuses(401), refuses(401), DONE, tools=desk(tmp_path, write=True)) as world:
        run_id = (await world.chat("Write.")).headers["x-request-id"]
        path = f"/context/runs/{run_id}/resume"
        assert (await world.post({}, path=path)).status == 200
        await world.model.upstream.wait_requests(3)
        await world.run(run_id, state="awaiting_client")  # it failed once more
        assert (await world.post({}, path=path)).status == 200
        await world.run(run_id, state="completed")
        await ran_once(world)
        over = await world.post({}, path=path)
        assert (over.status, over.error["code"]) == (409, "run_not_waiting")
        half = await world.post({"step": 0}, path=path)
        assert (half.status, half.error["param"]) == (400, "as")


async def test_run_with_the_clients_own_key_waits_for_its_client(tmp_path: Path) -> None:
    """The key is not stored: nobody else lets the run go on."""
    own = {"Authorization": "Bearer theirs"}
    async with talking(WRITE, refuses(401), DONE, tools=desk(tmp_path, write=True)) as world:
        run_id = (await world.chat("Write.", headers=own)).headers["x-request-id"]
        refused = await world.post({}, path=f"/context/runs/{run_id}/resume")
        assert (refused.status, refused.error["code"]) == (409, "run_not_waiting")
        assert (await world.chat("Write.", headers=own)).text == "Written."


async def test_permanent_refusal_ends_the_run(tmp_path: Path) -> None:
    """Nothing would be otherwise later."""
    async with talking(WRITE, refuses(400, "too long"), tools=desk(tmp_path, write=True)) as world:
        answer = await world.chat("Write.")
        assert (answer.status, answer.error["code"]) == (400, "upstream_rejected")
        assert (await world.run(answer.headers["x-request-id"]))["state"] == "failed"


async def test_parked_run_is_not_resumed_by_another_caller(tmp_path: Path) -> None:
    """The same words are another request."""
    keys: list[Json] = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "scopes": ["context"]}
        for name in ("ann", "bob")
    ]
    ann, bob = ({"Authorization": f"Bearer {name}"} for name in ("ann", "bob"))
    settings: Json = {"tools": desk(tmp_path, write=True), "keys": keys, "upstream": {"api_key": "k"}}
    async with talking(WRITE, refuses(401), says("Hello Bob."), DONE, **settings) as world:
        assert (await world.chat("Write.", headers=ann)).status == 401
        assert (await world.chat("Write.", headers=bob)).text == "Hello Bob."
        assert (await world.chat("Write.", headers=ann)).text == "Written."


async def test_retry_wait_longer_than_the_run_timeout_parks_the_run(tmp_path: Path) -> None:
    """A wait that is longer than what is left is none: the run is parked at once."""
    waits = refuses(429).but(headers=(("Retry-After", "50"),))
    options: Json = {"tools": desk(tmp_path, write=True), "loop": {"timeout": "20s"}}
    async with talking(WRITE, waits, DONE, **options) as world, asyncio.timeout(15):
        assert (await world.chat("Write.")).error["code"] == "upstream_limited"
        assert (await world.chat("Write.")).text == "Written."


async def test_client_disconnect_during_a_retry_wait_runs_the_tool_once(tmp_path: Path) -> None:
    """Its repetition gets the answer; nothing is asked for nobody."""
    waits = refuses(429).but(headers=(("Retry-After", "2"),))
    async with talking(WRITE, waits, DONE, tools=desk(tmp_path, write=True)) as world:
        async with world.streaming("Write."):
            await world.model.upstream.wait_requests(2)
            await until_read(lambda: world.counted("gateway_model_retries_total"))
        assert (await world.stream("Write.", headers={"x-stainless-retry-count": "1"})).text == "Written."
        await ran_once(world)
