"""A conversation as a summary: what it consists of, who may send it back, and what comes of it."""

import asyncio
from pathlib import Path

import pytest

from gateway.contracts.storage.store import Json
from gateway.dialects.registry import build_paths
from tests.e2e.models import Answer, Cut, calls, refuses, says
from tests.e2e.talking import desk

from .answering import CONVERSATIONS, KEYS, RESPONSES, Client, answering, kinds, text_of

BLUE: Json = {"phrases": {"jars": ["blue jar"]}}
SUMMARY = "Ada keeps her keys in the blue jar."


def message(role: str, text: str) -> Json:
    return {"role": role, "content": text}


async def compacted(client: Client, said: object, *, path: str = RESPONSES, **fields: object) -> Json:
    answer = await client.create(said, path=f"{path}/compact", **fields)
    assert answer.status == 200, answer.json
    found: Json = answer.json
    return found


TALK = [
    message("system", "Be terse."),
    message("user", "Where are the keys?"),
    message("assistant", "In the blue jar."),
    message("developer", "Use English."),
]


@pytest.mark.parametrize("path", build_paths("responses"))
async def test_compaction_keeps_messages_and_appends_a_summary(path: str) -> None:
    """Messages of users, systems and developers stay. One model call without stages and tools."""
    async with answering(says(SUMMARY)) as client:
        client.world.session.headers["X-Context-Mode"] = "context"
        made = await compacted(client, TALK, path=path)
        assert made.keys() == {"id", "object", "output", "created_at", "usage"}
        assert made["object"] == "response.compaction" and made["usage"]["total_tokens"] == 18
        assert kinds(made["output"]) == ["message", "message", "message", "compaction"]
        assert [item["role"] for item in made["output"][:3]] == ["system", "user", "developer"]
        sealed = made["output"][-1]
        assert sealed["id"].startswith("cmp_") and SUMMARY not in sealed["encrypted_content"]
        (asked,) = client.world.model.asked
        assert [one["role"] for one in asked["messages"]] == ["system", "user", "assistant", "system", "user"]
        assert "Summarise this conversation" in asked["messages"][-1]["content"] and "tools" not in asked


async def test_guards_see_what_is_compacted() -> None:
    """What is personal goes to the model as little as with any request, and what is blocked does not."""
    for stage, status in (({"use": "redact_pii"}, 200), ({"use": "block_list", "with": BLUE}, 502)):
        answers = [says(SUMMARY)] if status == 200 else []
        chains = {"assistant": [stage, {"use": "agent_loop"}]}
        async with answering(*answers, chains=chains) as client:
            said = [*TALK, message("user", "Blue jar: write to ada@example.com")]
            answer = await client.create(said, path=f"{RESPONSES}/compact")
            assert answer.status == status and "ada@" not in str(client.world.model.asked)
            assert ("[EMAIL_1]" in str(client.world.model.asked)) == (status == 200)


async def test_a_summary_takes_the_place_of_its_conversation() -> None:
    """The model reads it as one of the system's messages; `compaction_summary` is Codex's name for it."""
    async with answering(says(SUMMARY), says("one"), says("two")) as client:
        output = (await compacted(client, TALK))["output"]
        await client.create([*output, message("user", "And now?")])
        first = client.world.model.asked[-1]["messages"]
        assert [one["role"] for one in first] == ["system", "user", "system", "system", "user"]
        assert first[1]["content"] == TALK[1]["content"] and SUMMARY in first[3]["content"]
        renamed = [{**one, "type": "compaction_summary"} for one in output if one["type"] == "compaction"]
        assert text_of((await client.create([*renamed, message("user", "And now?")])).json) == "two"


async def test_summary_item_works_in_chains_and_conversations() -> None:
    """It is stored as the item that it is, and opened again each time."""
    async with answering(says(SUMMARY), says("one"), says("two"), says("three")) as client:
        output = (await compacted(client, TALK))["output"][-1:]
        first = (await client.create([*output, message("user", "1")])).json
        await client.create("2", previous_response_id=first["id"])
        assert SUMMARY in client.world.model.asked[-1]["messages"][0]["content"]
        conversation = (await client.post({"items": output}, CONVERSATIONS)).json["id"]
        await client.create("3", conversation=conversation)
        assert SUMMARY in client.world.model.asked[-1]["messages"][0]["content"]


async def test_response_chain_is_compacted_as_a_whole() -> None:
    """With the messages of systems that its earlier requests had."""
    async with answering(says("one"), says(SUMMARY)) as client:
        first = (await client.create([message("system", "Be terse."), message("user", "1")])).json
        made = await compacted(client, "2", previous_response_id=first["id"])
        assert kinds(made["output"]) == ["message", "message", "message", "compaction"]
        assert [item["content"][0]["text"] for item in made["output"][:3]] == ["Be terse.", "1", "2"]
        read = client.world.model.asked[-1]["messages"]
        assert [one["content"] for one in read[:-1]] == ["Be terse.", "1", "one"]
        assert read[-1]["content"].startswith("2\n\nSummarise")  # no second message of the user in a row


async def test_compaction_uses_but_does_not_store_instructions() -> None:
    """They are of the request alone, as in responses."""
    async with answering(says(SUMMARY)) as client:
        made = await compacted(client, [message("user", "1")], instructions="Be terse.")
        assert [item.get("role") for item in made["output"]] == ["user", None]
        assert client.world.model.prompts == ["Be terse."]


async def test_a_forged_or_foreign_summary_is_refused() -> None:
    """Nobody writes history that its user never saw; a tenant's summary is no other's."""
    async with answering(says(SUMMARY), **KEYS) as client:
        ann, eve = client.of("ann"), client.of("eve")
        *_, sealed = (await compacted(ann, [message("user", "1")]))["output"]
        changed = {**sealed, "encrypted_content": "x" + sealed["encrypted_content"][1:]}
        for asks, item in ((ann, changed), (ann, {**sealed, "encrypted_content": "x"}), (eve, sealed)):
            for path in (RESPONSES, f"{RESPONSES}/compact"):
                refused = await asks.create([message("user", "1"), item], path=path)
                assert (refused.status, refused.error["code"]) == (400, "invalid_field")
                assert refused.error["param"] == "input[1].encrypted_content"
        refused = await eve.post({"items": [sealed]}, CONVERSATIONS)
        assert (refused.error["code"], refused.error["param"]) == ("invalid_field", "items[0].encrypted_content")
        assert len(client.world.model.asked) == 1


async def test_a_summary_taints_the_run(tmp_path: Path) -> None:
    """It may repeat what a stranger wrote: a call that the model calls harmless is asked about."""
    write = calls("file_operations", operation="write", path="new.txt", content="x")
    answers = (says(SUMMARY), write)
    tools, risk = desk(tmp_path, write=True), {"trust_llm": "until_tainted"}
    async with answering(*answers, tools=tools, risk=risk) as client:
        *_, sealed = (await compacted(client, [message("user", "1")]))["output"]
        asked = (await client.create([sealed, message("user", "Write.")])).json
        assert "approve ap_" in text_of(asked) and not (tmp_path / "work" / "new.txt").exists()


@pytest.mark.parametrize("answer", [says(""), says(" \n"), says("half", finish="length")])
async def test_invalid_model_summary_returns_502(answer: Answer) -> None:
    """The client keeps its conversation."""
    async with answering(answer) as client:
        refused = await client.create(TALK, path=f"{RESPONSES}/compact")
        assert (refused.status, refused.error["code"]) == (502, "upstream_error")


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [(refuses(429), 429, "upstream_limited"), (says("half", Cut(), finish=None), 502, "upstream_error")],
)
async def test_compaction_returns_model_errors_with_their_status(answer: Answer, status: int, code: str) -> None:
    """With its status."""
    async with answering(answer) as client:
        refused = await client.create(TALK, path=f"{RESPONSES}/compact")
        assert (refused.status, refused.error["code"]) == (status, code)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"model": None}, "missing_field", "model"),
        ({"input": None}, "missing_field", "input"),
        ({"stream": True}, "unknown_parameter", "stream"),
        ({"tools": []}, "unknown_parameter", "tools"),
        ({"input": 5}, "invalid_field", "input"),
        ({"previous_response_id": "resp_x"}, "previous_response_not_found", "previous_response_id"),
    ],
)
async def test_invalid_compaction_request_is_refused_before_the_model_call(fields: Json, code: str, param: str) -> None:
    """Before the model is asked."""
    async with answering() as client:
        body = {"model": "m", "input": TALK, **fields}
        refused = await client.post(body, f"{RESPONSES}/compact")
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, code, param)


async def test_compaction_requires_the_context_scope() -> None:
    """401 and 403 for others."""
    async with answering(**KEYS) as client:
        for name, code in (("", "missing_api_key"), ("nobody", "invalid_api_key"), ("con", "scope_missing")):
            assert (await client.of(name).create(path=f"{RESPONSES}/compact")).error["code"] == code


async def test_client_disconnect_cancels_the_compaction_call() -> None:
    """Nobody would read the summary."""
    gate = asyncio.Event()
    async with answering(says("half", gate)) as client:
        asking = asyncio.create_task(client.create(TALK, path=f"{RESPONSES}/compact"))
        await client.world.model.upstream.wait_requests(1)
        asking.cancel()
        await asyncio.wait({asking})
        await client.world.model.upstream.wait_open(0)
