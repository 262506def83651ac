"""Messages of the user that come with a decision: the model reads them behind the result of the call."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest
from gateways import until, until_read

from gateway.contracts.storage.store import Json
from gateway.runs.decision_messages import ADDED, MOST_BYTES
from tests.e2e.models import calls, says
from tests.e2e.talking import desk
from tests.support.gateway_process import GatewayProcess

from .answering import (
    CONVERSATIONS,
    GATEWAY,
    KEYS,
    RESPONSES,
    Client,
    answering,
    elsewhere,
    folder_store,
    kinds,
    text_of,
)
from .test_decisions import asked, both, decision, write

#: Two keys must approve each call that a person must.
TWO: Json = {**KEYS, "approvals": {"require": [{"tools": ["file_operations"], "approvals": 2}]}}
READ = calls("file_operations", operation="read", path="notes.txt")


def message(text: str) -> Json:
    return {"type": "message", "role": "user", "content": text}


def roles(client: Client) -> list[str]:
    return [one["role"] for one in client.sent]


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("going_on", ["previous_response_id", "conversation", "the items", "the messages alone"])
async def test_user_message_with_a_decision_follows_the_call_result(
    tmp_path: Path, going_on: str, *, is_first: bool
) -> None:
    """However the client goes on; its place beside the response is its own."""
    async with answering(write(), says("Both."), says("Yes."), tools=desk(tmp_path, write=True)) as client:
        fields: Json = {"tools": [GATEWAY]}
        if going_on == "conversation":
            fields["conversation"] = (await client.post({}, CONVERSATIONS)).json["id"]
        first, question = await asked(client, **fields)
        before: list[Json] = []
        if going_on == "previous_response_id":
            fields["previous_response_id"] = first["id"]
        elif going_on != "conversation":
            before = [message("Write."), *(first["output"] if going_on == "the items" else [])]
        own = [decision(question), message("And say so.")]
        answer = (await client.create([*before, *(own[::-1] if is_first else own)], **fields)).json
        assert kinds(answer["output"]) == ["mcp_call", "message"] and text_of(answer) == "Both."
        assert roles(client) == ["user", "assistant", "tool", "user"]
        assert [client.sent[0]["content"], client.sent[3]["content"]] == ["Write.", "And say so."]
        later = {**fields, "previous_response_id": answer["id"]} if "conversation" not in fields else fields
        assert text_of((await client.create("Is it there?", **later)).json) == "Yes."
        said = [one["content"] for one in client.sent if one["role"] == "user"]
        assert said.count("And say so.") == 1


async def test_stateless_client_can_send_whole_conversation_with_a_decision(tmp_path: Path) -> None:
    """Without questions and calls, as the AI SDK does with `store: false`: what the run began with is history."""
    answers = (write("1.txt"), write("2.txt"), says("Done."), says("Hello."))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        fields: Json = {"store": False, "tools": [GATEWAY]}
        history = [message("Write.")]
        _, one = await asked(client, **fields)
        history.append(decision(one))
        two = (await client.create(history, **fields)).json["output"][-1]
        history += [message("Be quick."), decision(two)]
        answer = (await client.create(history, **fields)).json
        assert kinds(answer["output"]) == ["mcp_call", "message"] and text_of(answer) == "Done."
        assert roles(client) == ["user", "assistant", "tool", "assistant", "tool", "user"]
        again = (await client.create(history, **fields)).json
        assert text_of(again) == "Done." and len(client.world.model.asked) == 3
        history += [{"type": "message", "role": "assistant", "content": "Done."}, message("Say hello.")]
        assert text_of((await client.create(history, **fields)).json) == "Hello."


async def test_message_with_a_decision_survives_a_restart(tmp_path: Path) -> None:
    """It is on disk with the decision: whoever takes the run over has it."""
    settings: Json = {"tools": desk(tmp_path, write=True), **folder_store(tmp_path)}
    answers = (write(), says("never read", before=asyncio.Event()), says("Both."))
    async with answering(*answers, **settings) as client:
        _, question = await asked(client)
        async with GatewayProcess(json.dumps(client.world.config)) as killed:
            body: Json = {"model": "m", "input": [decision(question), message("And say so.")], "tools": [GATEWAY]}
            sent = asyncio.create_task(client.world.session.post(killed.base_url + RESPONSES, json=body))
            await until(lambda: len(client.world.model.asked) == 2)
            await killed.kill()
            with pytest.raises(aiohttp.ClientError):
                await sent
        await client.world.run(await run_of(client, question), state="completed")
        assert roles(client) == ["user", "assistant", "tool", "user"] and client.sent[-1]["content"] == "And say so."
        assert len(client.world.model.asked) == 3


async def run_of(client: Client, question: Json) -> str:
    run_id: str = (await client.world.get(f"/context/approvals/{question['id']}")).json["run_id"]
    return run_id


async def test_repeated_decision_adds_its_message_once(tmp_path: Path) -> None:
    """In this process and in another, under way and afterwards."""
    gate = asyncio.Event()
    settings: Json = {"tools": desk(tmp_path, write=True), **folder_store(tmp_path)}
    async with answering(write(), says("Both.", before=gate), **settings) as client, elsewhere(client) as there:
        _, question = await asked(client)
        own = [decision(question), message("And say so.")]
        async with client.streaming(own, tools=[GATEWAY]) as events:
            await events.until("response.output_item.done")
            others = [asyncio.create_task(one.create(own, tools=[GATEWAY])) for one in (client, there)]
            gate.set()
            await events.rest()
        told = [(await one).json for one in others] + [(await there.create(own, tools=[GATEWAY])).json]
        assert {text_of(one) for one in told} == {"Both."} and len(client.world.model.asked) == 2
        assert roles(client) == ["user", "assistant", "tool", "user"]


async def test_message_with_a_late_decision_is_refused(tmp_path: Path) -> None:
    """Somebody else has decided: its answer would be of a run that never read it."""
    async with answering(write(), says("Written."), tools=desk(tmp_path, write=True)) as client:
        _, question = await asked(client)
        assert (await client.world.decide(question["id"])).status == 200
        refused = await client.create([decision(question), message("And say so.")], tools=[GATEWAY])
        assert (refused.status, refused.error["code"]) == (409, "decision_conflict")
        assert "your message did not come with that decision" in refused.error["message"]
        answer = (await client.create([decision(question)], tools=[GATEWAY])).json
        assert text_of(answer) == "Written."


async def test_message_of_another_user_is_refused_with_its_decision(tmp_path: Path) -> None:
    """It has no place in the conversation of the person who asked, and nothing is decided."""
    async with answering(write(), says("Written."), tools=desk(tmp_path, write=True)) as client:
        _, question = await asked(client, user="ann")
        refused = await client.create([decision(question), message("And say so.")], tools=[GATEWAY], user="bob")
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "invalid_field", "input")
        assert "Nothing was decided" in refused.error["message"]
        assert not (tmp_path / "work" / "new.txt").exists() and len(client.world.model.asked) == 1
        answer = (await client.create([decision(question)], tools=[GATEWAY], user="ann")).json
        assert text_of(answer) == "Written."


async def test_message_with_a_rejection_reaches_the_model(tmp_path: Path) -> None:
    """Behind the results of all calls of the round."""
    async with answering(both(), says("One."), tools=desk(tmp_path, write=True)) as client:
        one, two = (await client.create("Write.", tools=[GATEWAY])).json["output"][-2:]
        own = [decision(one, approve=False), decision(two), message("And say so.")]
        answer = (await client.create(own, tools=[GATEWAY])).json
        assert text_of(answer) == "One." and roles(client) == ["user", "assistant", "tool", "tool", "user"]


async def test_message_approving_a_terminating_call_is_answered(tmp_path: Path) -> None:
    """The model hears it, and answers."""
    last = calls("file_operations", terminate=True, operation="write", path="new.txt", content="x", risk_level=None)
    async with answering(last, says("And so I say."), tools=desk(tmp_path, write=True)) as client:
        _, question = await asked(client)
        answer = (await client.create([decision(question), message("And say so.")], tools=[GATEWAY])).json
        assert text_of(answer) == "And so I say." and client.sent[-1]["content"] == "And say so."


async def test_waiting_stream_gets_the_message_of_the_deciding_request(tmp_path: Path) -> None:
    """Its run goes on in the request that holds it open."""
    async with answering(write(), says("Both."), tools=desk(tmp_path, write=True)) as client:
        async with client.streaming("Write.", tools=[GATEWAY], headers={"X-Context-Approvals": "hold"}) as held:
            while (item := (await held.until("response.output_item.done"))["item"])["type"] != "mcp_approval_request":
                pass
            own = [message("Write."), decision(item), message("And say so.")]
            answer = (await client.create(own, tools=[GATEWAY])).json
            await held.rest()
        assert text_of(answer) == "Both." and roles(client) == ["user", "assistant", "tool", "user"]


async def test_message_with_a_decision_is_sent_to_the_model_once(tmp_path: Path) -> None:
    """A decision without an `mcp` tool: what the client did not see comes back to the model, and its message once."""
    fields: Json = {"headers": {"X-Context-User": "ann"}}
    async with answering(write(), says("Both."), says("Yes."), tools=desk(tmp_path, write=True)) as client:
        first = (await client.create("Write.", **fields)).json
        (approval,) = (await client.world.get("/context/approvals")).json["data"]
        own = [decision(approval), message("And say so.")]
        answer = (await client.create(own, previous_response_id=first["id"], **fields)).json
        assert text_of(answer) == "Both."
        await client.create("Is it there?", previous_response_id=answer["id"], **fields)
        assert [one["content"] for one in client.sent].count("And say so.") == 1 and "tool" in roles(client)


async def test_message_with_a_decision_is_not_shown_on_pages(tmp_path: Path) -> None:
    """The conversation is that of its person; others of the tenant see that a decision was made."""
    async with answering(write(), says("Both."), tools=desk(tmp_path, write=True)) as client:
        _, question = await asked(client)
        own = [decision(question), message("And say so.")]
        async with client.streaming(own, tools=[GATEWAY]) as events:
            await events.rest()
        run_id = await run_of(client, question)
        async with client.world.session.get(f"/context/runs/{run_id}/events") as response:
            told = await response.text()
        assert "approval.resolved" in told and "And say so." not in told
        async with client.world.session.ws_connect("/context/ws?after=0") as socket:
            seen = ""
            while "approval.resolved" not in seen:
                seen += await socket.receive_str()
        assert "And say so." not in seen


async def test_message_of_the_first_of_two_approvers_reaches_the_model(tmp_path: Path) -> None:
    """The other key approves by another way, and the run goes on without a request."""
    async with answering(write(), says("Both."), key="ann", tools=desk(tmp_path, write=True), **TWO) as client:
        _, question = await asked(client)
        first = (await client.create([decision(question), message("And say so.")], tools=[GATEWAY])).json
        assert first["output"][-1]["id"] == question["id"]
        assert (await client.world.decide(question["id"], key="con")).status == 200
        await until(lambda: len(client.world.model.asked) == 2)
        assert roles(client) == ["user", "assistant", "tool", "user"] and client.sent[-1]["content"] == "And say so."


async def test_narrowing_by_the_first_of_two_approvers_applies(tmp_path: Path) -> None:
    """The other key approves by another way, and the next call asks as the first one wants."""
    answers = (write(), READ, says("It ran unasked."))
    async with answering(*answers, key="ann", tools=desk(tmp_path, write=True), **TWO) as client:
        _, question = await asked(client)
        await client.create([decision(question)], tools=[{**GATEWAY, "require_approval": "always"}])
        assert (await client.world.decide(question["id"], key="con")).status == 200
        await until(lambda: len(client.world.model.asked) > 1)
        path = "/context/approvals?status=pending"
        found = await until_read(lambda: client.world.get(path, **client.headers()), lambda page: page.json["data"])
        assert [one["arguments"]["operation"] for one in found.json["data"]] == ["read"]


async def test_ask_before_message_beside_a_decision_requires_the_next_approval(tmp_path: Path) -> None:
    """No stage reads it: the next call, which no one is asked about otherwise, asks."""
    async with answering(write(), READ, tools=desk(tmp_path, write=True)) as client:
        _, question = await asked(client)
        own = [decision(question), message("Ask me before you do anything else.")]
        told = (await client.create(own, tools=[GATEWAY])).json
        assert kinds(told["output"]) == ["mcp_call", "mcp_approval_request"]
        assert json.loads(told["output"][1]["arguments"])["operation"] == "read"


async def test_message_for_several_decisions_is_stored_once(tmp_path: Path) -> None:
    """A run may wait for hundreds, and each worker reads all events."""
    async with answering(both(), says("Two."), tools=desk(tmp_path, write=True)) as client:
        questions = (await client.create("Write.", tools=[GATEWAY])).json["output"][-2:]
        own = [*map(decision, questions), message("And say so.")]
        assert text_of((await client.create(own, tools=[GATEWAY])).json) == "Two."
        events = await client.store.list_events(after=0, limit=500)
        assert [event.type for event in events].count(ADDED) == 1 and client.sent[-1]["content"] == "And say so."


async def test_too_long_message_is_refused_with_its_decision(tmp_path: Path) -> None:
    """A run writes it with each line of its record."""
    async with answering(write(), says("Written."), tools=desk(tmp_path, write=True)) as client:
        _, question = await asked(client)
        refused = await client.create([decision(question), message("x" * MOST_BYTES)], tools=[GATEWAY])
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "invalid_field", "input")
        assert f"a run takes {MOST_BYTES:,}" in refused.error["message"]
        assert not (tmp_path / "work" / "new.txt").exists() and len(client.world.model.asked) == 1
        answer = (await client.create([decision(question)], tools=[GATEWAY])).json
        assert text_of(answer) == "Written."


async def test_message_with_a_run_ending_rejection_is_refused(tmp_path: Path) -> None:
    """Of a run whose client is shown no calls: no model would read it."""
    async with answering(write(), tools=desk(tmp_path, write=True)) as client:
        await client.create("Write.")
        (approval,) = (await client.world.get("/context/approvals")).json["data"]
        refused = await client.create([decision(approval, approve=False), message("Read it.")])
        assert (refused.status, refused.error["code"]) == (400, "invalid_field")
        assert "Nothing was decided: a rejection ends this run" in refused.error["message"]
        (left,) = (await client.world.get("/context/approvals")).json["data"]
        assert left["state"] == "pending"


async def test_message_that_would_bypass_a_stage_is_refused(tmp_path: Path) -> None:
    """A stored run goes on below the stage, which every other message of the user meets."""
    uses = [{"use": "block_list", "with": {"phrases": {"projects": ["Blue Heron"]}}}, {"use": "agent_loop"}]
    settings: Json = {"tools": desk(tmp_path, write=True), "chains": {"assistant": uses}}
    async with answering(write(), says("Written."), **settings) as client:
        _, question = await asked(client)
        refused = await client.create([decision(question), message("About Blue Heron.")], tools=[GATEWAY])
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "invalid_field", "input")
        assert "Nothing was decided: the stage 'block_list'" in refused.error["message"]
        answer = (await client.create([decision(question)], tools=[GATEWAY])).json
        assert text_of(answer) == "Written." and len(client.world.model.asked) == 2
