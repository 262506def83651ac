"""Responses with a client, before their end and after their client has left: their ids lead to them all the time."""

import asyncio
from pathlib import Path

import pytest
from gateways import until_read

from gateway.api.responses import in_progress
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.runs import leases
from gateway.runs.live import LiveRuns
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock
from tests.e2e.models import Answer, says
from tests.e2e.talking import desk
from tests.runs.living import Work, exchange, request_key

from .answering import CONVERSATIONS, KEYS, RESPONSES, Client, Events, answering, text_of
from .test_creating import RUNS
from .test_response_store import RESPONSE, RUN, row, shelf


def made(events: Events) -> str:
    response_id: str = events.read[0]["response"]["id"]
    return response_id


async def items_in(client: Client, conversation: str) -> list[Json]:
    found: list[Json] = (await client.get(conversation, "/items?order=asc", path=CONVERSATIONS)).json["data"]
    return found


async def test_response_is_readable_from_its_first_event() -> None:
    """With what there is, by its tenant alone; later requests go on from it once it has ended."""
    gate = asyncio.Event()
    async with answering(says("one ", gate, "two"), says("three"), **KEYS) as client:
        ann, bob, eve = map(client.of, ("ann", "bob", "eve"))
        async with ann.streaming("1") as events:
            await events.until("response.output_text.delta")
            found = (await bob.get(made(events))).json
            assert (found["status"], text_of(found), found["output"][0]["status"]) == (
                "in_progress",
                "one ",
                "in_progress",
            )
            assert len((await bob.get(made(events), "/input_items")).json["data"]) == 1
            assert (await eve.get(made(events))).error["code"] == "response_not_found"
            refused = await ann.create("2", previous_response_id=made(events))
            assert (refused.status, refused.error["param"]) == (400, "previous_response_id")
            refused = await ann.post(b"", f"{RESPONSES}/{made(events)}/cancel")
            assert (refused.status, refused.error["code"]) == (400, "invalid_field")
            gate.set()
            await events.rest()
        assert (await bob.get(made(events))).json == events.last
        assert (await ann.create("2", previous_response_id=made(events))).status == 200


async def test_response_deleted_while_running_is_never_stored() -> None:
    """The model stops, the client gets an end, and the conversation stays as it was."""
    gate = asyncio.Event()
    async with answering(says("one ", gate, "two"), says("three")) as client:
        conversation = (await client.post({}, CONVERSATIONS)).json["id"]
        async with client.streaming("1", conversation=conversation) as events:
            await events.until("response.output_text.delta")
            assert (await client.delete(made(events))).json["deleted"] is True
            assert (await client.get(made(events))).error["code"] == "response_not_found"
            await events.rest()
            assert (events.kinds[-1], events.last["status"]) == ("response.failed", "cancelled")
        await client.world.model.upstream.wait_open(0)
        assert (await client.get(made(events))).error["code"] == "response_not_found"
        assert (await client.delete(made(events))).status == 404
        assert await items_in(client, conversation) == []


@pytest.mark.parametrize("background", [False, True])
async def test_deletion_of_a_recorded_response_stops_its_model_call(
    monkeypatch: pytest.MonkeyPatch, *, background: bool
) -> None:
    """At once, and not when this worker looks at its leases next."""
    monkeypatch.setattr(leases, "LOOK_S", 3600.0)
    gate = asyncio.Event()
    async with answering(says("one ", gate)) as client:
        async with client.streaming("1", headers={"Idempotency-Key": "k1"}, background=background) as events:
            await events.until("response.output_text.delta")
            assert (await client.delete(made(events))).json["deleted"] is True
            await client.world.model.upstream.wait_open(0)
        assert (await client.get(made(events))).status == 404


async def test_client_disconnect_cancels_its_response() -> None:
    """Without an effect the model's call ends; what was said is there, and adds nothing to the conversation."""
    gate = asyncio.Event()
    async with answering(says("one ", gate)) as client:
        conversation = (await client.post({}, CONVERSATIONS)).json["id"]
        async with client.streaming("1", conversation=conversation) as events:
            await events.until("response.output_text.delta")
        found = await client.until(made(events), "cancelled")
        assert (text_of(found), found["output"][0]["status"], found["error"]) == ("one ", "incomplete", None)
        await client.world.model.upstream.wait_open(0)
        assert (await client.get(made(events))).json == found
        assert await items_in(client, conversation) == []
        assert (await client.delete(made(events))).json["deleted"] is True
        assert (await client.get(made(events))).status == 404


async def test_store_false_response_is_never_found() -> None:
    """Neither under way nor afterwards."""
    gate = asyncio.Event()
    async with answering(says("one ", gate)) as client:
        async with client.streaming("1", store=False) as events:
            await events.until("response.output_text.delta")
            assert (await client.get(made(events))).status == (await client.delete(made(events))).status == 404
        await client.world.model.upstream.wait_open(0)
        assert (await client.get(made(events))).status == 404


async def test_response_with_an_effect_is_readable_after_client_disconnect(tmp_path: Path) -> None:
    """In progress while its client may come back, and then as the client that did reads it."""
    gate, headers = asyncio.Event(), {"Idempotency-Key": "k1"}
    answers: tuple[Answer, ...] = (RUNS, says("one ", gate, "two"), says("one two"))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        async with client.streaming("1", headers=headers) as broken:
            await broken.until("response.output_text.delta")
        assert (await client.get(made(broken))).json["status"] == "in_progress"
        events = await client.stream("1", headers=headers)
        assert made(events) == made(broken) and (await client.get(made(broken))).json == events.last


async def test_slowly_read_answer_is_stored_after_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Soon after its run has ended. What is deleted then does not come back with the client's end."""
    monkeypatch.setattr(in_progress, "LOOK_S", 0.01)
    async with shelf() as desk_of:
        kept, runs, work = desk_of.kept, LiveRuns(clock=Clock(ManualClock())), Work(effects=False)
        run = runs.begin(exchange(RUN), request_key(), work)
        with kept.hold_response(row(run_id="run_2"), run, streams=True):
            assert (await desk_of.resource())["status"] == "in_progress"
            work.go.set()
            await until_read(lambda: kept.store.get_response(RESPONSE, tenant="acme"))
            found = await desk_of.find()
            assert found.state == "completed" and text_of(await desk_of.resource()) == "hihi"
            await kept.delete(found)
            answer = kept.build_answer(found)
            answer.build_whole(run.transcript.chunks)
            await kept.store_ended(row(run_id="run_2"), answer)
            with pytest.raises(GatewayError, match="no response with this id"):
                await desk_of.find()
        await kept.close()
        await runs.close()
