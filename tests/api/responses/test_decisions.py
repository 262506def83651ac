"""Requests that decide on calls: what they may decide at once, and what their responses contain."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from gateways import until, until_read

from gateway.contracts.storage.store import Json
from gateway.testing.local_gateway import LocalGateway
from tests.e2e.models import Answer, calls, native, says
from tests.e2e.talking import desk, talking

from .answering import CONVERSATIONS, GATEWAY, RESPONSES, Client, answering, elsewhere, folder_store, kinds, text_of


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


async def test_response_contains_approval_requests_of_one_run(tmp_path: Path) -> None:
    """So that a client which answers all of them decides in a request for one run."""
    answers = (write("1.txt"), write("2.txt"))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        one, two = [(await asked(client, said))[1]["id"] for said in ("1", "2")]
        told = (await client.create(f"What are {one} and {two}?", tools=[GATEWAY])).json
        assert kinds(told["output"]) == ["message", "mcp_approval_request"] and told["output"][1]["id"] == one


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
                await until(lambda: len(client.world.gateway.gateway._state.runs._runs) == 3)
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


async def test_decision_already_made_by_another_approver_gets_the_answer(tmp_path: Path) -> None:
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
    """The repeated request waits there for the end of the run."""
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
        await until(lambda: bool(second.gateway._state.runs._runs))
        gate.set()
        told, answer = (await first).json, (await again).json
        assert kinds(answer["output"]) == ["mcp_call", "message"] == kinds(told["output"])
        assert text_of(answer) == text_of(told) == "Written."


def typed(question: Json) -> str:
    return f"approve {question['id']}"


async def turns(client: Client, conversation_id: str) -> list[str]:
    """The types of the items of a conversation."""
    return kinds((await client.get(conversation_id, "/items?order=asc&limit=100", path=CONVERSATIONS)).json["data"])


ASKED = ["message", "mcp_list_tools", "mcp_approval_request"]


@pytest.mark.parametrize("is_typed", [False, True])
async def test_a_decision_sent_again_adds_nothing_to_its_conversation(tmp_path: Path, *, is_typed: bool) -> None:
    """In any worker, beside the first one and after it: the conversation has the call and its answer once."""
    gate = asyncio.Event()
    answers = (write(), says("Written.", before=gate), says("Yes."))
    settings: Json = {"tools": desk(tmp_path, write=True), **folder_store(tmp_path)}
    async with answering(*answers, **settings) as client, elsewhere(client) as there:
        conversation = (await client.post({}, CONVERSATIONS)).json["id"]
        fields: Json = {"conversation": conversation, "tools": [GATEWAY]}
        _, question = await asked(client, **fields)
        decided = typed(question) if is_typed else [decision(question)]
        sent = [asyncio.create_task(one.create(decided, **fields)) for one in (client, there, client, there)]
        await until(lambda: len(client.world.model.asked) == 2)
        gate.set()
        told = [(await one).json for one in sent]
        told += [(await one.create(decided, **fields)).json for one in (client, there)]
        assert {text_of(one).rpartition("\n")[2] for one in told} == {"Written."} and len(
            {one["id"] for one in told}
        ) == 6
        first = "message" if is_typed else "mcp_approval_response"
        assert await turns(client, conversation) == [*ASKED, first, "mcp_call", "message"]
        assert text_of((await client.create("Is it there?", **fields)).json) == "Yes."
        assert [message["role"] for message in client.world.model.asked[-1]["messages"]].count("tool") == 1


async def test_repeated_decision_completes_a_turn_that_was_never_stored(tmp_path: Path) -> None:
    """The process ended before; the response of the first try ends later, and adds nothing to the conversation."""
    gate = asyncio.Event()
    settings: Json = {"tools": desk(tmp_path, write=True), **folder_store(tmp_path)}
    async with answering(write(), says("half ", gate), says("Written."), **settings) as client:
        conversation = (await client.post({}, CONVERSATIONS)).json["id"]
        fields: Json = {"conversation": conversation, "tools": [GATEWAY]}
        _, question = await asked(client, **fields)
        async with client.streaming([decision(question)], **fields) as events:
            await events.until("response.output_text.delta")
            await client.world.gateway.gateway.close()
        first = events.read[0]["response"]["id"]
        async with elsewhere(client) as there:
            again = (await there.create([decision(question)], **fields)).json
            assert text_of(again).endswith("Written.") and again["id"] != first
            await there.until(first, "completed")
            assert await turns(there, conversation) == [*ASKED, "mcp_approval_response", *kinds(again["output"])]


async def test_decisions_add_only_new_items_to_the_conversation(tmp_path: Path) -> None:
    """A further question is a further turn; a conversation that has none of it gets the answer, too."""
    async with answering(write("1.txt"), write("2.txt"), says("Done."), tools=desk(tmp_path, write=True)) as client:
        conversation, other = [(await client.post({}, CONVERSATIONS)).json["id"] for _ in range(2)]
        fields: Json = {"conversation": conversation, "tools": [GATEWAY]}
        _, one = await asked(client, **fields)
        two = (await client.create([decision(one)], **fields)).json["output"][-1]
        before = await turns(client, conversation)
        assert before == [*ASKED, "mcp_approval_response", "mcp_call", "mcp_approval_request"]
        await client.create([decision(one)], **fields)
        assert await turns(client, conversation) == before
        await client.create([decision(two)], **fields)
        assert await turns(client, conversation) == [*before, "mcp_approval_response", "mcp_call", "message"]
        await client.create([decision(two)], **{**fields, "conversation": other})
        assert (await turns(client, other))[-2:] == ["mcp_call", "message"]


# The fields of a request that decides.

LIST = calls("file_operations", operation="list", path=".")
RECORD = calls("execute_sql", query="SELECT * FROM pets")
ASKS: Json = {**GATEWAY, "require_approval": "always"}
SQL_ONLY: Json = {**GATEWAY, "allowed_tools": ["execute_sql"]}


async def outcome(
    client: Client, question: Json, fields: Json, headers: dict[str, str]
) -> list[tuple[str, str | None]]:
    """The types of the items behind a decision, each with its error."""
    answer = await client.create([decision(question)], headers=headers, **{"tools": [GATEWAY], **fields})
    assert answer.status == 200, answer.json
    output = answer.json["output"]
    failed = [item["error"]["content"][0]["text"] if item.get("error") else None for item in output]
    return list(zip(kinds(output), failed, strict=True))


@pytest.mark.parametrize(
    ("fields", "headers", "refused"),
    [
        ({"tools": [SQL_ONLY]}, {}, "no tool"),
        ({"tool_choice": "none"}, {}, "no tool"),
        ({}, {"X-Context-Tools": "execute_sql"}, "no tool"),
        ({"max_tool_calls": 1}, {}, "limit"),
        ({"tools": [ASKS]}, {}, None),
    ],
)
async def test_fields_of_a_deciding_request_narrow_the_run(
    tmp_path: Path, fields: Json, headers: dict[str, str], refused: str | None
) -> None:
    """The call that was decided on runs; what the model wants behind it is under these fields."""
    async with answering(write(), LIST, says("Done."), tools=desk(tmp_path, write=True)) as client:
        _, question = await asked(client)
        first, second, *_ = await outcome(client, question, fields, headers)
        assert first == ("mcp_call", None) and (tmp_path / "work" / "new.txt").exists()
        if refused is None:
            assert second == ("mcp_approval_request", None)
        else:
            assert second[0] == "mcp_call" and second[1] is not None and refused in second[1]


async def test_equal_or_wider_fields_do_not_change_the_run(tmp_path: Path) -> None:
    """A client repeats what it began with; a wider request widens nothing."""
    async with answering(write(), RECORD, LIST, says("Done."), tools=desk(tmp_path, write=True)) as client:
        _, question = await asked(client, tools=[{**GATEWAY, "allowed_tools": ["file_operations"]}])
        told = await outcome(client, question, {}, {})
        assert [kind for kind, _ in told] == ["mcp_call", "mcp_call", "mcp_call", "message"]
        assert told[1][1] is not None and "no tool" in told[1][1] and told[2] == ("mcp_call", None)


async def test_a_narrowed_run_stays_narrowed_in_the_next_process(tmp_path: Path) -> None:
    """The decision is on record with the fields, so whoever continues the run has them."""
    gate = asyncio.Event()
    settings: Json = {"tools": desk(tmp_path, write=True), **folder_store(tmp_path)}
    answers = (write(), says("half ", gate), LIST, says("Done."))
    async with answering(*answers, **settings) as client:
        _, question = await asked(client)
        async with client.streaming([decision(question)], tools=[SQL_ONLY]) as events:
            await events.until("response.output_text.delta")
            await client.world.gateway.gateway.close()
        response_id = events.read[0]["response"]["id"]
        async with LocalGateway(client.world.config) as second:
            url = f"{second.base_url}{RESPONSES}/{response_id}"
            found = await until_read(lambda: client.world.get(url), lambda got: got.json.get("status") == "completed")
        errors = [item["error"] for item in found.json["output"] if item["type"] == "mcp_call"]
        assert errors[0] is None and "no tool" in errors[1]["content"][0]["text"]


async def test_headers_of_a_deciding_chat_message_narrow_the_run(tmp_path: Path) -> None:
    """By its headers."""
    async with talking(write(), LIST, says("Done."), tools=desk(tmp_path, write=True)) as world:
        first = await world.chat("Write.")
        (approval,) = first.asks
        said = [
            {"role": "user", "content": "Write."},
            first.message,
            {"role": "user", "content": f"approve {approval['id']} {approval['check_word']}"},
        ]
        assert (await world.chat(said, headers={"X-Context-Tools": "execute_sql"})).text == "Done."
        run = await world.run(approval["run_id"])
        assert [step["state"] for step in run["steps"]] == ["finished", "refused"]


async def test_decision_with_tool_choice_none_calls_no_function(tmp_path: Path) -> None:
    """The model is asked without a choice, and a call that it makes all the same reaches nobody."""
    theirs: Json = {"type": "function", "name": "theirs", "parameters": {"type": "object", "properties": {}}}
    answers = (write(), native(("theirs", {})), says("Done."))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        _, question = await asked(client, tools=[GATEWAY, theirs])
        answer = await client.create([decision(question)], tools=[GATEWAY, theirs], tool_choice="none")
        assert "function_call" not in kinds(answer.json["output"]) and text_of(answer.json) == "Done."
        assert client.world.model.asked[1]["tool_choice"] == "none"


async def test_waiting_stream_is_narrowed_by_the_deciding_request(tmp_path: Path) -> None:
    """The request that holds it open began with more tools; it loses those, too."""
    async with answering(write(), LIST, says("Done."), tools=desk(tmp_path, write=True)) as client:
        async with client.streaming("Write.", tools=[GATEWAY], headers={"X-Context-Approvals": "hold"}) as held:
            while (item := (await held.until("response.output_item.done"))["item"])["type"] != "mcp_approval_request":
                pass
            told = await outcome(client, item, {"tools": [SQL_ONLY]}, {})
            output = (await held.rest()).last["output"]
        assert [kind for kind, _ in told] == ["mcp_call", "mcp_call", "message"]
        errors = [item["error"] for item in output if item["type"] == "mcp_call"]
        assert errors[0] is None and "no tool" in errors[1]["content"][0]["text"]


@pytest.mark.parametrize("stores", [True, False])
async def test_response_after_a_decision_reports_the_fields_of_its_run(tmp_path: Path, *, stores: bool) -> None:
    """The model, its instructions and its settings are those of the request that began the run."""
    async with answering(write(), says("Done."), tools=desk(tmp_path, write=True)) as client:
        began: Json = {"instructions": "Be brief.", "temperature": 0.5, "max_output_tokens": 99, "store": stores}
        first, question = await asked(client, **began)
        body: Json = {
            "model": "other",
            "instructions": "Be long.",
            "temperature": 1.5,
            "top_p": 0.5,
            "tools": [GATEWAY],
        }
        answer = (await client.create([decision(question)], **{**body, "store": stores, "metadata": {"n": "1"}})).json
        sent = client.world.model.asked[-1]
        assert (sent["model"], sent["temperature"], sent["max_tokens"], "top_p" in sent) == ("m", 0.5, 99, False)
        names = ("model", "temperature", "top_p", "max_output_tokens", "text", "tools", "tool_choice")
        assert {name: answer[name] for name in names} == {name: first[name] for name in names}
        assert answer["instructions"] == ("Be brief." if stores else None) and answer["metadata"] == {"n": "1"}
        if stores:
            assert (await client.get(answer["id"])).json == answer


async def test_late_decision_response_reports_the_fields_of_the_run(tmp_path: Path) -> None:
    """Somebody else has decided, and the run goes on with all of its tools: its response does not state otherwise."""
    gate = asyncio.Event()
    async with answering(
        write(), says("Written.", before=gate), tools=desk(tmp_path, write=True), **folder_store(tmp_path)
    ) as client:
        first, question = await asked(client)
        assert (await client.world.decide(question["id"])).status == 200
        await until(lambda: len(client.world.model.asked) == 2)
        late: Json = {"tools": [SQL_ONLY], "tool_choice": "none", "max_tool_calls": 1}
        async with client.streaming([decision(question)], **late) as events:
            await events.until("response.in_progress")
            gate.set()
            answer = (await events.rest()).last
        again = (await client.create([decision(question)], **late)).json
        for told in (answer, again):
            assert {name: told[name] for name in late} == {name: first[name] for name in late}


async def test_decision_on_an_ended_run_returns_the_recorded_run_fields(tmp_path: Path) -> None:
    """Nothing of its own request takes the place of what the record of the run has lost."""
    async with answering(write(), says("Written."), tools=desk(tmp_path, write=True)) as client:
        began: Json = {"instructions": "x" * 5000, "temperature": 0.5, "store": False}
        _, question = await asked(client, **began)
        assert (await client.create([decision(question)], tools=[GATEWAY], store=False)).status == 200
        own: Json = {"model": "other", "instructions": "Be long.", "temperature": 1.5, "tools": [GATEWAY]}
        answer = (await client.create([decision(question)], **own)).json
        assert (answer["model"], answer["temperature"], answer["instructions"]) == ("m", 0.5, None)


# Rejections.


def both() -> Answer:
    """Two calls that a person must approve, in one answer."""
    written = [json.loads(write(name).pieces[0]) for name in ("1.txt", "2.txt")]  # type: ignore[arg-type]
    return says(json.dumps(written))


@pytest.mark.parametrize("rejected", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
async def test_rejection_does_not_affect_other_decisions(tmp_path: Path, rejected: int, *, stream: bool) -> None:
    """Each call is an item with its outcome, and the reason reaches the model."""
    async with answering(both(), says("One of two."), tools=desk(tmp_path, write=True)) as client:
        questions = (await client.create("Write.", tools=[GATEWAY])).json["output"][-2:]
        decisions = [decision(question, approve=i != rejected) for i, question in enumerate(questions)]
        decisions[rejected]["reason"] = "not that one"
        if stream:
            answer = (await client.stream(decisions, tools=[GATEWAY])).last
        else:
            answer = (await client.create(decisions, tools=[GATEWAY])).json
        assert kinds(answer["output"]) == ["mcp_call", "mcp_call", "message"] and text_of(answer) == "One of two."
        ran, refused = answer["output"][1 - rejected], answer["output"][rejected]
        assert (ran["status"], refused["status"]) == ("completed", "failed")
        assert refused["approval_request_id"] == questions[rejected]["id"]
        assert "not that one" in json.dumps(refused["error"])
        assert "not that one" in client.sent[-2 + rejected]["content"]
        assert [(tmp_path / "work" / name).exists() for name in ("1.txt", "2.txt")] == [rejected == 1, rejected == 0]


async def test_rejection_over_rest_does_not_affect_other_calls(tmp_path: Path) -> None:
    """The other question stays open, and the response that decides on it has both calls."""
    async with answering(both(), says("One of two."), tools=desk(tmp_path, write=True)) as client:
        one, two = (await client.create("Write.", tools=[GATEWAY])).json["output"][-2:]
        assert (await client.world.decide(one["id"], "reject", reason="no")).status == 200
        answer = (await client.create([decision(two)], tools=[GATEWAY])).json
        assert [item["status"] for item in answer["output"]] == ["failed", "completed", "completed"]
        assert not (tmp_path / "work" / "1.txt").exists() and (tmp_path / "work" / "2.txt").exists()


async def test_rejection_reason_is_truncated_to_2000_characters(tmp_path: Path) -> None:
    """The model gets it, and so does whoever looks at the approval."""
    async with answering(write(), says("No."), tools=desk(tmp_path, write=True)) as client:
        _, question = await asked(client)
        await client.create([{**decision(question, approve=False), "reason": "r" * 5000}], tools=[GATEWAY])
        assert "r" * 2000 in client.sent[-1]["content"] and "r" * 2001 not in client.sent[-1]["content"]


# The conversation of a request that decides.


async def test_decision_continuing_a_response_of_another_run_is_refused(tmp_path: Path) -> None:
    """Behind another one its call and answer would stand in a conversation that never asked for them."""
    answers = (says("Hello."), write("1.txt"), write("2.txt"), says("Written."), says("Yes."))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        other = (await client.create("Hi")).json["id"]
        first, question = await asked(client)
        refused = await client.create([decision(question)], previous_response_id=other, tools=[GATEWAY])
        assert (refused.status, refused.error["param"]) == (400, "previous_response_id")
        assert question["id"] in refused.error["message"] and other in refused.error["message"]
        assert not (tmp_path / "work" / "1.txt").exists() and len(client.world.model.asked) == 2
        second = (await client.create([decision(question)], previous_response_id=first["id"], tools=[GATEWAY])).json
        last = decision(second["output"][-1])
        third = (await client.create([last], previous_response_id=second["id"], tools=[GATEWAY])).json
        assert text_of(third) == "Written."
        again = (await client.create([last], previous_response_id=first["id"], tools=[GATEWAY])).json
        assert text_of(again) == "Written."  # of the same run


async def test_decision_may_continue_a_response_sharing_the_approval(tmp_path: Path) -> None:
    """Both wait for the same call, which one approval clears: the second response asks for it, too."""
    async with answering(write(), write(), says("Written."), tools=desk(tmp_path, write=True)) as client:
        headers = {"X-Context-User": "ann"}
        _, one = await asked(client, headers=headers)
        second, two = await asked(client, "Write it now.", headers=headers)
        assert two["id"] == one["id"]
        fields: Json = {"previous_response_id": second["id"], "tools": [GATEWAY], "headers": headers}
        assert text_of((await client.create([decision(two)], **fields)).json) == "Written."


@pytest.mark.parametrize("native_tools", [False, True])
async def test_repeated_approval_request_reports_its_original_usage(tmp_path: Path, *, native_tools: bool) -> None:
    """In both dialects: the model was asked once, and the tokens are those of its answer."""
    fields: Json = {"tools": [GATEWAY]} if native_tools else {}
    async with answering(write("1.txt"), write("2.txt"), tools=desk(tmp_path, write=True)) as client:
        headers = {"X-Context-User": "ann"}
        first, again = [(await client.create("Write.", headers=headers, **fields)).json for _ in range(2)]
        assert again["usage"] == first["usage"] and first["usage"]["total_tokens"] == 18
        chat, repeated = [await client.world.chat("Write.", headers=headers) for _ in range(2)]
        assert repeated.json["usage"] == chat.json["usage"] and chat.json["usage"]["total_tokens"] == 18
        assert chat.asks == repeated.asks and len(client.world.model.asked) == 2
