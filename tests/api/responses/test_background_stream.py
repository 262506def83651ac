"""Background responses: they go on without a client, and their events are read from any number on, by anybody."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from gateways import until, until_read

from gateway.api.responses import background_stream
from gateway.contracts.storage.store import Json
from gateway.testing.local_gateway import LocalGateway
from tests.e2e.models import Cut, calls, refuses, says
from tests.e2e.talking import desk

from .answering import CONVERSATIONS, GATEWAY, KEYS, RESPONSES, Client, answering, folder_store, kinds, text_of

RUNS = calls("file_operations", operation="write", path="new.txt", content="x")
WRITE = calls("file_operations", operation="write", path="new.txt", content="x", risk_level=None)


async def begun(client: Client, said: object = "Hi", **fields: object) -> str:
    """The id of a background response that has begun."""
    made = await client.create(said, background=True, **fields)
    assert (made.status, made.json["status"]) == (200, "queued"), made.json
    assert made.json["background"] is True and made.json["output"] == []
    response_id: str = made.json["id"]
    return response_id


async def test_a_background_response_goes_on_without_a_client() -> None:
    """It is queued or in progress, then completed; the model is asked once."""
    gate = asyncio.Event()
    async with answering(says("one ", gate, "two")) as client:
        response_id = await begun(client)
        await client.until(response_id, "in_progress")
        gate.set()
        done = await client.until(response_id, "completed")
        assert text_of(done) == "one two" and done["usage"]["total_tokens"] == 18
        assert len(client.world.model.asked) == 1


async def test_response_in_progress_shows_its_output_so_far() -> None:
    """Its output so far."""
    gate = asyncio.Event()
    async with answering(says("one ", gate, "two")) as client:
        response_id = await begun(client)
        found = await until_read(lambda: client.get(response_id), lambda found: found.json["output"])
        assert found.json["status"] == "in_progress" and text_of(found.json) == "one "
        assert found.json["output"][0]["status"] == "in_progress"
        gate.set()
        await client.until(response_id, "completed")


async def test_background_stream_can_be_replayed_unchanged() -> None:
    """From its creation on, with all its numbers; it is read again as it was."""
    async with answering(says("one ", "two")) as client:
        events = await client.stream(background=True)
        assert events.kinds[:2] == ["response.created", "response.queued"] and "response.in_progress" in events.kinds
        assert events.kinds[-1] == "response.completed" and events.done
        assert events.numbers == list(range(len(events.read)))
        again = await client.followed(events.last["id"])
        assert again.raw == events.raw
        assert (await client.get(events.last["id"])).json == events.last


async def test_background_stream_resumes_after_any_sequence_number(tmp_path: Path) -> None:
    """Also where calls of tools are shown."""
    async with answering(RUNS, says("one ", "two"), tools=desk(tmp_path, write=True)) as client:
        events = await client.stream(background=True, tools=[GATEWAY])
        assert "mcp_call" in kinds(events.last["output"])
        frames = events.raw.split(b"\n\n")
        for number in range(-1, len(events.read)):
            behind = await client.followed(events.last["id"], after=None if number < 0 else number)
            assert behind.raw == b"\n\n".join(frames[number + 1 :]) and behind.done


async def test_two_followers_get_the_same_events() -> None:
    """Whenever they come, while the response is made."""
    gate = asyncio.Event()
    async with answering(says("one ", gate, "two")) as client:
        response_id = await begun(client)
        async with client.following(response_id) as first:
            await first.until("response.output_text.delta")
            async with client.following(response_id) as second:
                await second.until("response.output_text.delta")
                gate.set()
                await asyncio.gather(first.rest(), second.rest())
        assert first.raw == second.raw and first.text == "one two"


async def test_background_stream_resumes_after_the_client_disconnects() -> None:
    """The run does not notice."""
    gate = asyncio.Event()
    async with answering(says("one ", gate, "two")) as client:
        async with client.streaming(background=True) as broken:
            await broken.until("response.output_text.delta")
        gate.set()
        rest = await client.followed(broken.read[0]["response"]["id"], after=broken.numbers[-1])
        assert broken.text + rest.text == "one two"
        assert broken.numbers + rest.numbers == list(range(len(broken.read) + len(rest.read)))


async def test_a_silent_stream_is_kept_alive() -> None:
    """By comments, which have no number."""
    gate = asyncio.Event()
    stream = {"stream": {"keepalive": "50ms"}}
    async with answering(says("one ", gate, "two"), context=stream) as client:
        async with client.streaming(background=True) as events:
            await events.until("response.output_text.delta")
            assert await events.response.content.readuntil(b"\n\n") == b": keep-alive\n\n"
            gate.set()
            await events.rest()
        assert events.numbers == list(range(len(events.read)))


async def test_failed_background_response_replays_its_error_and_output(tmp_path: Path) -> None:
    """Its error, and the output before it."""
    async with answering(says("one", Cut(), finish=None), refuses(400)) as client:
        events = await client.stream(background=True)
        assert events.kinds[-2:] == ["error", "response.failed"]
        assert (await client.followed(events.last["id"])).raw == events.raw
        assert (await client.get(events.last["id"])).json == events.last
        response_id = await begun(client, "2")
        failed = await client.until(response_id, "failed")
        assert failed["error"]["type"] == "upstream_rejected" and failed["output"] == []


@pytest.mark.parametrize(("status", "n_asked"), [(401, 2), (503, 1 + 6)])
async def test_model_failure_after_a_call_fails_the_background_run(tmp_path: Path, status: int, n_asked: int) -> None:
    """The model is called again as often as for a client; then the run has failed: nobody would continue it."""
    failure = refuses(status).but(headers=(("Retry-After", "0"),))
    async with answering(RUNS, *[failure] * (n_asked - 1), tools=desk(tmp_path, write=True)) as client:
        failed = await client.until(await begun(client, tools=[GATEWAY]), "failed")
        assert kinds(failed["output"]) == ["mcp_list_tools", "mcp_call"]
        assert failed["error"]["type"] in ("upstream_refused", "upstream_error", "upstream_unavailable")
        assert "goes on from there" not in failed["error"]["message"]
        run = await client.world.run("run_" + failed["id"].removeprefix("resp_"))
        assert (run["state"], run["error"]["code"]) == ("failed", failed["error"]["type"])
        assert len(client.world.model.asked) == n_asked


async def test_a_background_response_is_cancelled() -> None:
    """Its run ends, its followers get the end, and it stays as it was then."""
    gate = asyncio.Event()
    async with answering(says("one ", gate, "two")) as client:
        response_id = await begun(client)
        async with client.following(response_id) as events:
            await events.until("response.output_text.delta")
            cancelled = await client.post(b"", f"{RESPONSES}/{response_id}/cancel")
            assert (cancelled.status, cancelled.json["status"]) == (200, "cancelled")
            assert text_of(cancelled.json) == "one " and cancelled.json["error"] is None
            await events.rest()
            assert events.last == cancelled.json
        await client.world.model.upstream.wait_open(0)
        assert (await client.get(response_id)).json == cancelled.json
        assert (await client.post(b"", f"{RESPONSES}/{response_id}/cancel")).json == cancelled.json
        assert (await client.followed(response_id)).last == cancelled.json


async def test_a_response_that_has_ended_cannot_be_cancelled() -> None:
    """409 for one of the background; one with a client ends with it."""
    async with answering(says("one"), says("two")) as client:
        done = (await client.stream("1", background=True)).last["id"]
        refused = await client.post(b"", f"{RESPONSES}/{done}/cancel")
        assert (refused.status, refused.error["code"]) == (409, "run_ended")
        other = (await client.create("2")).json["id"]
        refused = await client.post(b"", f"{RESPONSES}/{other}/cancel")
        assert (refused.status, refused.error["code"]) == (400, "invalid_field")


async def test_a_running_response_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cancelled first, is not there afterwards, and its followers are told."""
    monkeypatch.setattr(background_stream, "LOOK_S", 0.0)
    gate = asyncio.Event()
    async with answering(says("one ", gate, "two")) as client:
        response_id = await begun(client)
        async with client.following(response_id) as events:
            await events.until("response.output_text.delta")
            assert (await client.delete(response_id)).json["deleted"] is True
            await events.rest()
            assert events.kinds[-1] == "response.failed" and events.done
        await client.world.model.upstream.wait_open(0)
        for path in ("", "/input_items"):
            assert (await client.get(response_id, path)).error["code"] == "response_not_found"
        refused = await client.create("2", previous_response_id=response_id)
        assert refused.error["code"] == "previous_response_not_found"


async def test_background_stream_fails_when_its_run_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can come of it any more."""
    monkeypatch.setattr(background_stream, "LOOK_S", 0.0)
    async with answering(says("one"), **folder_store(tmp_path)) as client:
        response_id = (await client.stream(background=True)).last["id"]
        with closing(sqlite3.connect(tmp_path / "gateway.db")) as connection, connection:
            await until(lambda: connection.execute("SELECT output FROM responses").fetchone()[0] is not None)
            connection.execute("UPDATE responses SET state = 'queued', output = NULL, run_id = 'run_gone'")
            connection.execute("DELETE FROM answer_chunks")
        events = await client.followed(response_id)
        assert events.kinds[-2:] == ["error", "response.failed"] and events.done
        assert events.last["error"]["type"] == "run_interrupted"
        assert (await client.get(response_id)).json["status"] == "failed"


async def test_unfinished_background_response_cannot_be_continued() -> None:
    """Before that the chain has no end."""
    gate = asyncio.Event()
    async with answering(says("one ", gate, "two"), says("three")) as client:
        response_id = await begun(client, "1")
        refused = await client.create("2", previous_response_id=response_id)
        assert (refused.status, refused.error["code"]) == (400, "invalid_field")
        assert refused.error["param"] == "previous_response_id" and response_id in refused.error["message"]
        gate.set()
        await client.until(response_id, "completed")
        await client.create("2", previous_response_id=response_id)
        assert [one["content"] for one in client.sent] == ["1", "one two", "2"]


async def test_a_conversation_gets_a_background_response_once() -> None:
    """When it ends."""
    async with answering(says("one")) as client:
        conversation = (await client.post({}, CONVERSATIONS)).json["id"]
        response_id = await begun(client, "1", conversation=conversation)
        await client.until(response_id, "completed")
        for _ in range(2):
            await client.followed(response_id)
            items = (await client.get(conversation, "/items?order=asc", path=CONVERSATIONS)).json["data"]
            assert [item["content"][0]["text"] for item in items] == ["1", "one"]


async def test_idempotency_key_returns_the_same_background_response() -> None:
    """Under way and afterwards; it begins once."""
    gate, headers = asyncio.Event(), {"Idempotency-Key": "k1"}
    async with answering(says("one ", gate, "two")) as client:
        first = await begun(client, headers=headers)
        assert (await client.create(background=True, headers=headers)).json["id"] == first
        gate.set()
        done = await client.until(first, "completed")
        again = await client.create(background=True, headers=headers)
        assert again.json == done and len(client.world.model.asked) == 1


async def test_pending_approval_ends_the_background_turn(tmp_path: Path) -> None:
    """The decision begins the next response, in the background, too."""
    async with answering(WRITE, says("Written."), tools=desk(tmp_path, write=True)) as client:
        asked = await client.until(await begun(client, "Write.", tools=[GATEWAY]), "completed")
        question = asked["output"][-1]
        assert question["type"] == "mcp_approval_request"
        decision = {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": True}
        made = await client.create([decision], background=True, previous_response_id=asked["id"], tools=[GATEWAY])
        done = await client.until(made.json["id"], "completed")
        assert text_of(done) == "Written." and (tmp_path / "work" / "new.txt").read_text() == "x"
        assert [item["approval_request_id"] for item in done["output"] if item["type"] == "mcp_call"] == [
            question["id"]
        ]
        assert (await client.followed(done["id"])).last == done


async def test_background_call_approved_elsewhere_runs(tmp_path: Path) -> None:
    """Nobody need bring the decision to the response; it has ended with its question."""
    async with answering(WRITE, says("Written."), tools=desk(tmp_path, write=True)) as client:
        asked = await client.until(await begun(client, "Write.", tools=[GATEWAY]), "completed")
        question = asked["output"][-1]
        assert (await client.world.decide(question["id"])).status == 200
        await until_read(lambda: client.world.get("/context/runs"), lambda found: _completed(found.json))
        assert (tmp_path / "work" / "new.txt").read_text() == "x"
        assert (await client.get(asked["id"])).json == asked


def _completed(runs: Json) -> bool:
    return [run["state"] for run in runs["data"]] == ["completed"]


async def test_streaming_a_non_background_response_is_refused() -> None:
    """400: there is no log of it."""
    async with answering(says("one")) as client:
        made = (await client.create()).json["id"]
        refused = await client.get(made, "?stream=true")
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "invalid_field", "stream")


@pytest.mark.parametrize(
    ("query", "code", "param"),
    [
        ("?stream=yes", "invalid_field", "stream"),
        ("?stream=true&starting_after=-1", "invalid_field", "starting_after"),
        ("?stream=true&starting_after=x", "invalid_field", "starting_after"),
        ("?after=5", "unknown_field", "after"),
        ("?include[]=x", "invalid_field", "include[]"),
    ],
)
async def test_invalid_stream_query_is_refused_with_its_name(query: str, code: str, param: str) -> None:
    """400, with its name."""
    async with answering(says("one")) as client:
        response_id = (await client.stream(background=True)).last["id"]
        refused = await client.get(response_id, query)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, code, param)


async def test_stream_after_the_last_event_contains_only_done() -> None:
    """There is nothing but the end."""
    async with answering(says("one")) as client:
        response_id = (await client.stream(background=True)).last["id"]
        assert (await client.followed(response_id, after=10_000)).raw == b"data: [DONE]\n\n"


async def test_a_gateway_that_stops_ends_its_streams() -> None:
    """Without the end of the response: the client goes on from its last event elsewhere."""
    gate = asyncio.Event()
    async with answering(says("one ", gate)) as client:
        async with client.streaming(background=True) as events:
            await events.until("response.output_text.delta")
            draining = asyncio.create_task(client.world.gateway.gateway.drain())
            await events.rest()
            assert not events.done and "response.completed" not in events.kinds
        await draining


async def test_background_stream_can_be_followed_from_another_worker(tmp_path: Path) -> None:
    """It reads the same log, while it is written elsewhere."""
    gate = asyncio.Event()
    async with (
        answering(says("one ", gate, "two"), **folder_store(tmp_path)) as client,
        LocalGateway(client.world.config) as second,
    ):
        response_id = await begun(client)
        async with client.following(response_id) as here:
            await here.until("response.output_text.delta")
            async with client.following(response_id, base_url=second.base_url) as there:
                await there.until("response.output_text.delta")
                gate.set()
                await asyncio.gather(here.rest(), there.rest())
        assert here.raw == there.raw and here.text == "one two" and here.done


async def test_a_response_goes_on_after_a_restart(tmp_path: Path) -> None:
    """In the next process: what was read stays, and the rest follows behind it."""
    gate = asyncio.Event()
    settings: Json = {"tools": desk(tmp_path, write=True), **folder_store(tmp_path)}
    answers = (RUNS, says("half ", gate), says("one two"))
    async with answering(*answers, **settings) as client:
        async with client.streaming(background=True, tools=[GATEWAY]) as before:
            await before.until("response.output_text.delta")
            await client.world.gateway.gateway.close()
        async with LocalGateway(client.world.config) as second:
            response_id = before.read[0]["response"]["id"]
            async with client.following(response_id, after=before.numbers[-1], base_url=second.base_url) as after:
                await after.rest()
            assert before.numbers + after.numbers == list(range(len(before.read) + len(after.read)))
            texts = [text_of({"output": [item]}) for item in after.last["output"] if item["type"] == "message"]
            statuses = [item["status"] for item in after.last["output"] if item["type"] == "message"]
            assert (texts, statuses) == (["half ", "one two"], ["incomplete", "completed"])
            assert kinds(after.last["output"]).count("mcp_call") == 1
            async with client.following(response_id, base_url=second.base_url) as whole:
                await whole.rest()
            assert whole.raw == before.raw + after.raw


async def test_background_responses_are_visible_only_within_the_tenant() -> None:
    """Each key of the tenant follows and cancels; to others it is not there."""
    gate = asyncio.Event()
    async with answering(says("one ", gate), **KEYS) as client:
        response_id = await begun(client.of("ann"))
        eve = client.of("eve")
        for query in ("", "?stream=true"):
            assert (await eve.get(response_id, query)).error["code"] == "response_not_found"
        assert (await eve.post(b"", f"{RESPONSES}/{response_id}/cancel")).error["code"] == "response_not_found"
        assert (await eve.delete(response_id)).error["code"] == "response_not_found"
        cancelled = await client.of("bob").post(b"", f"{RESPONSES}/{response_id}/cancel")
        assert cancelled.json["status"] == "cancelled"


async def test_background_without_agent_loop_is_refused() -> None:
    """400: no run of it is on record."""
    async with answering(chains={"plain": []}, context={"chain": "plain"}) as client:
        refused = await client.create(background=True)
        assert (refused.status, refused.error["code"]) == (400, "unsupported_parameter")
        assert refused.error["param"] == "background"
