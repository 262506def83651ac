"""Requests that decide on calls: what they may decide at once, and what their responses contain."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from gateways import until

from gateway.contracts.store import Json
from gateway.testing.local import LocalGateway
from tests.e2e.models import Answer, calls, says
from tests.e2e.talking import desk

from .answering import GATEWAY, RESPONSES, Client, answering, folder_store, kinds, text_of


def write(name: str = "new.txt") -> Answer:
    """A call that a person must approve."""
    return calls("file_operations", operation="write", path=name, content="x", risk_level=None)


def decision(question: Json, *, approve: bool = True) -> Json:
    return {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": approve}


async def asked(client: Client, said: str = "Write.", **fields: Any) -> tuple[Json, Json]:
    """A response that ends with a question, and the question."""
    response = (await client.create(said, **{"tools": [GATEWAY], **fields})).json
    question = response["output"][-1]
    assert question["type"] == "mcp_approval_request"
    return response, question


async def test_decisions_on_two_runs_are_not_made_in_one_request(tmp_path: Path) -> None:
    """Nothing is decided: each run has an answer of its own, and the error names both."""
    answers = (write("1.txt"), write("2.txt"), says("One."), says("Two."))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        questions = [(await asked(client, said))[1] for said in ("1", "2")]
        refused = await client.create(list(map(decision, questions)), tools=[GATEWAY])
        assert (refused.status, refused.error["code"]) == (400, "invalid_field")
        assert all(question["id"] in refused.error["message"] for question in questions)
        assert not list((tmp_path / "work").glob("?.txt"))
        for i, question in enumerate(questions, 1):
            answer = (await client.create([decision(question)], tools=[GATEWAY])).json
            assert kinds(answer["output"]) == ["mcp_call", "message"] and (tmp_path / "work" / f"{i}.txt").exists()
            assert text_of(answer) == ("One." if i == 1 else "Two.")


async def test_a_response_has_questions_of_one_run(tmp_path: Path) -> None:
    """So that a client which answers all of them decides in a request for one run."""
    answers = (write("1.txt"), write("2.txt"))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        one, two = [(await asked(client, said))[1]["id"] for said in ("1", "2")]
        told = (await client.create(f"What are {one} and {two}?", tools=[GATEWAY])).json
        assert [item["id"] for item in told["output"]] == [one]


# A decision that is sent again.


@pytest.mark.parametrize("stream", [False, True])
async def test_a_decision_sent_again_while_its_run_goes_on_gets_the_same_answer(
    tmp_path: Path, *, stream: bool
) -> None:
    """By a client that lost its first answer, or beside it: as the run goes on, and nothing runs twice."""
    gate = asyncio.Event()
    async with answering(write(), says("Writ", gate, "ten."), tools=desk(tmp_path, write=True)) as client:
        _, question = await asked(client)
        async with client.streaming([decision(question)], tools=[GATEWAY]) as first:
            await first.until("response.output_text.delta")
            if stream:
                async with client.streaming([decision(question)], tools=[GATEWAY], metadata={"n": "2"}) as second:
                    assert (await second.until("response.output_text.delta"))["delta"] == "Writ"
                    assert not gate.is_set()
                    gate.set()
                    again = (await second.rest()).last
            else:
                sent = asyncio.create_task(client.create([decision(question)], tools=[GATEWAY]))
                await until(lambda: len(client.world.gateway.gateway._runs._runs) == 3)
                gate.set()
                again = (await sent).json
            told = (await first.rest()).last
        assert kinds(again["output"]) == ["mcp_call", "message"] and text_of(again) == text_of(told) == "Written."
        assert again["output"][0]["output"] == told["output"][0]["output"] and again["id"] != told["id"]
        assert (await client.get(again["id"])).json == again
        later = (await client.create([decision(question)], tools=[GATEWAY], metadata={"n": "3"})).json
        assert text_of(later) == "Written." and len(client.world.model.asked) == 2
        refused = await client.create([decision(question, approve=False)], tools=[GATEWAY])
        assert (refused.status, refused.error["code"]) == (409, "decision_conflict")


async def test_a_decision_behind_another_persons_gets_the_answer(tmp_path: Path) -> None:
    """The console was faster, and the run goes on without a client."""
    gate = asyncio.Event()
    answers = (write(), says("Written.", before=gate))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        _, question = await asked(client)
        assert (await client.world.decide(question["id"])).status == 200
        await until(lambda: len(client.world.model.asked) == 2)
        async with client.streaming([decision(question)], tools=[GATEWAY]) as events:
            await events.until("response.in_progress")
            gate.set()
            answer = (await events.rest()).last
        assert kinds(answer["output"]) == ["mcp_call", "message"] and text_of(answer) == "Written."


async def test_a_decision_sent_again_to_another_process_gets_the_answer(tmp_path: Path) -> None:
    """It waits there for the end of the run."""
    gate = asyncio.Event()
    settings: Json = {"tools": desk(tmp_path, write=True), **folder_store(tmp_path)}
    async with (
        answering(write(), says("Written.", before=gate), **settings) as client,
        LocalGateway(client.world.config) as second,
    ):
        _, question = await asked(client)
        first = asyncio.create_task(client.create([decision(question)], tools=[GATEWAY]))
        await until(lambda: len(client.world.model.asked) == 2)
        body = {"model": "m", "input": [decision(question)], "tools": [GATEWAY]}
        again = asyncio.create_task(client.post(body, second.base_url + RESPONSES))
        await until(lambda: bool(second.gateway._runs._runs))
        gate.set()
        told, answer = (await first).json, (await again).json
        assert kinds(answer["output"]) == ["mcp_call", "message"] == kinds(told["output"])
        assert text_of(answer) == text_of(told) == "Written."
