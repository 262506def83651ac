"""What models and their servers do that the API does not say, and what clients ask of them."""

import asyncio
import json
from pathlib import Path

import pytest
from gateways import until_read

from .models import Answer, Json, calls, says
from .talking import desk, talking

READ = calls("file_operations", operation="read", path="notes.txt")
OWN = {"type": "function", "function": {"name": "theirs", "parameters": {"type": "object"}}}
NAMED = {"type": "function", "function": {"name": "theirs"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}


@pytest.mark.parametrize(
    ("forced", "later"),
    [
        ({"tool_choice": "required"}, {"tool_choice": "auto"}),
        ({"tool_choice": "any"}, {"tool_choice": "auto"}),
        ({"tool_choice": NAMED}, {"tool_choice": "auto"}),
        (
            {"tool_choice": ALLOWED},
            {"tool_choice": {**ALLOWED, "allowed_tools": {"mode": "auto", "tools": [NAMED]}}},
        ),
        ({"function_call": {"name": "theirs"}}, {"function_call": "auto"}),
        ({"tool_choice": "none"}, {"tool_choice": "none"}),
        ({"tool_choice": "auto"}, {"tool_choice": "auto"}),
        ({}, {}),
    ],
)
async def test_forced_tool_choice_applies_to_the_first_round_only(forced: Json, later: Json, tmp_path: Path) -> None:
    """Else the model could never answer; an answer that could not be read was no call."""
    broken = says('{"tool": "file_operations", "parameters": {')
    async with talking(broken, READ, READ, says("Behind the mirror."), tools=desk(tmp_path)) as world:
        answer = await world.chat("Where is the safe?", tools=[OWN], **forced)
        assert answer.text == "Behind the mirror."
        keys = ("tool_choice", "function_call")
        sent = [{key: body[key] for key in keys if key in body} for body in world.model.asked]
        assert sent == [forced, forced, later, later]


async def test_answer_completes_at_done_while_the_upstream_body_stays_open() -> None:
    """Behind `[DONE]` nothing is waited for: the client has its whole answer. The connection waits for a moment."""
    late, never = asyncio.Event(), asyncio.Event()
    end = json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).encode()
    hangs = says("Hello.", end, b"[DONE]", late, finish=None, usage=None, done=False)
    silent = says("Again.", end, b"[DONE]", never, finish=None, usage=None)
    async with talking(hangs, silent, says("Still.")) as world:
        async with asyncio.timeout(120):
            assert (await world.stream()).text == "Hello."
        late.set()  # the body ends now, once the client has its answer
        await until_read(lambda: world.counted('gateway_upstream_pool_connections{state="idle",upstream="up"}'))
        async with asyncio.timeout(120):
            assert (await world.chat("And?")).text == "Again."
        assert len(world.model.upstream.connections) == 1
        async with asyncio.timeout(120):
            assert (await world.chat("And?")).text == "Still."
        assert len(world.model.upstream.connections) == 2
        await world.model.upstream.wait_open(1)  # the one that never ended is closed


def one_id(*functions: tuple[str, Json]) -> Answer:
    """Calls that all have the same id."""
    pieces = [
        {"tool_calls": [{"index": i, "id": "call_same", "function": {"name": name, "arguments": json.dumps(given)}}]}
        for i, (name, given) in enumerate(functions)
    ]
    return Answer(tuple(pieces), finish="tool_calls")


@pytest.mark.parametrize("chains", [None, {"assistant": [{"use": "prompt_enhancer"}]}])
async def test_duplicate_ids_of_client_tool_calls_are_made_unique(chains: Json | None) -> None:
    """A client tells the results of its tools by their ids."""
    settings = {} if chains is None else {"chains": chains}
    async with talking(one_id(("theirs", {"at": 1}), ("theirs", {"at": 2})), **settings) as world:
        answer = await world.chat("Look twice.", tools=[OWN])
        first, second = answer.message["tool_calls"]
        assert [json.loads(call["function"]["arguments"]) for call in (first, second)] == [{"at": 1}, {"at": 2}]
        assert first["id"] == "call_same" != second["id"]


async def test_duplicate_ids_of_gateway_tool_calls_are_made_unique(tmp_path: Path) -> None:
    """Model servers refuse a message with two calls of one id."""
    read = {"operation": "read", "path": "notes.txt", "risk_level": "low"}
    both = one_id(("file_operations", read), ("file_operations", {**read, "operation": "info"}))
    async with talking(both, says("Read."), tools=desk(tmp_path)) as world:
        assert (await world.chat("Read it.")).text == "Read."
        called, *results = world.model.behind()
        ids = [call["id"] for call in called["tool_calls"]]
        assert len({*ids}) == 2 and [result["tool_call_id"] for result in results] == ids
