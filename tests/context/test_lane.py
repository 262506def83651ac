"""The context lane: what a request may say, what of it goes on, and how its run is answered."""

import asyncio
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pytest
from agent.doubles import Clock
from aiohttp import web
from gateways import Stopwatch, exchange

from gateway.context.chain import Link, fold
from gateway.contracts.caller import LOCAL
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk, Exchange, Handler, Intent, Job, Reply, Stage
from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import RequestedTools, Wishes
from gateway.runs.idempotency_key import RequestKey
from gateway.telemetry.counters import ContextCounters
from gateway.testing.clock import ManualClock
from tests.lanes.assembled import assembled
from tests.scripted_replies import reply_of

from .contexts import BODY, NOBODY, World, head, request_key


async def test_context_headers_set_chain_prompt_conversation_tools_and_events() -> None:
    """Chain, prompt, conversation, tools, events; what is not said has the configuration's value."""
    world = World()
    plain = await world.exchange()
    assert (plain.chain, plain.prompt, plain.conversation, plain.steering.only_tools, plain.delivery.events) == (
        "main",
        "default",
        None,
        (),
        False,
    )
    assert (plain.id, plain.caller, plain.body) == ("run_7", LOCAL, BODY)
    lines = (
        b"X-Context-Chain: other",
        b"X-Context-Prompt: pirate",
        b"X-Context-Conversation: c1",
        b"X-Context-Tools: read_*, now",
        b"X-Context-Events: 1",
    )
    steered = await world.exchange(*lines)
    assert (steered.chain, steered.prompt, steered.conversation) == ("other", "pirate", "c1")
    assert (steered.steering.only_tools, steered.delivery.events) == (("read_*", "now"), True)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("line", "expected"), [((), "turn"), ((b"X-Context-Approvals: hold",), "hold")])
async def test_approvals_header_chooses_the_approval_mode(
    line: tuple[bytes, ...], expected: str, *, stream: bool
) -> None:
    """For streams as for other answers; `gateway.context.approval_mode` has the rest."""
    assert (await World().exchange(*line, stream=stream)).steering.approvals == expected


async def test_unknown_chains_and_prompts_are_refused() -> None:
    """With the header, what came, the nearest name, and the names that there are."""
    world = World()
    for line, code, param, words in (
        (b"X-Context-Chain: mian", "invalid_header", "x-context-chain", ("'mian'", "'main'?", "main, other")),
        (b"X-Context-Prompt: pirat", "prompt_not_found", "x-context-prompt", ("'pirat'", "'pirate'?", "default")),
    ):
        with pytest.raises(GatewayError) as error:
            await world.exchange(line)
        assert (error.value.code, error.value.param) == (code, param)
        assert all(word in error.value.message for word in words), error.value.message


async def test_a_system_message_for_the_models_server_alone_is_no_prompt() -> None:
    """It has no text for anything else."""
    alone = {"role": "system", "content": "", "messages_api": {"output_config": {}}}
    messages = [alone, {"role": "user", "content": "Hi"}]
    assert (await World().exchange(messages=messages)).prompt == (await World().exchange()).prompt


@pytest.mark.parametrize("role", ["system", "developer"])
async def test_a_client_with_a_system_message_gets_no_base_prompt(role: str) -> None:
    """Unless it names one."""
    world = World()
    messages = [{"role": role, "content": "Be terse."}, *BODY["messages"]]
    assert (await world.exchange(messages=messages)).prompt is None
    assert (await world.exchange(b"X-Context-Prompt: pirate", messages=messages)).prompt == "pirate"


async def test_request_tools_narrow_the_tools_selected_by_headers() -> None:
    """Both at once; a request without wishes has those of nobody."""
    world = World()
    offers = (RequestedTools(label="gateway", place="tools[0]", names=("now",)),)
    for line, only in ((b"X-Context-Tools: n*", ("now",)), (b"X-Context-Tools: read_note", ())):
        wished = await world.lane.build_exchange(
            head(line), BODY, identity=NOBODY, run_id="run_7", wishes=Wishes(offers=offers), client={"a": 1}
        )
        assert (
            wished.steering.only_tools,
            wished.steering.no_tools,
            wished.delivery.shows_calls,
            wished.origin.client,
        ) == (
            only,
            not only,
            True,
            {"a": 1},
        )
    assert not (await world.exchange()).delivery.shows_calls


async def _passes(exchange: Exchange, call_next: Handler) -> Reply:
    return await call_next(exchange)


@pytest.mark.parametrize("line", [(), (b"X-Context-Task: title",)])
async def test_background_request_requires_a_chain_with_an_agent_loop(line: tuple[bytes, ...]) -> None:
    """One with an agent loop; a task goes past it. Words that only look like a task do not."""
    world = World()
    loop = Link("agent_loop", _passes, runs_tools=True)
    clock, counters = Clock(ManualClock()), ContextCounters()
    looping = fold("main", (loop,), world.lane.handlers.plain, counters=counters, clock=clock)
    titled = {"messages": [{"role": "user", "content": "### Task:\nGenerate a concise title for the chat."}]}

    async def asked(body: Json) -> Exchange:
        return await world.lane.build_exchange(
            head(*line), body, identity=NOBODY, run_id="run_7", wishes=Wishes(background=True)
        )

    with pytest.raises(GatewayError, match="agent_loop") as error:
        await asked(BODY)
    assert (error.value.code, error.value.param) == ("unsupported_parameter", "background")
    world.lane.chains = {"main": looping}
    if line:
        with pytest.raises(GatewayError, match="X-Context-Task"):
            await asked(BODY)
    else:
        assert (await asked(titled)).job.task is None and (await world.exchange(**titled)).job.task == "title"
        run = await world.lane.begin(await asked(BODY), RequestKey("f" * 64, None, repeats=False))
        assert run.detached
        await world.lane.runs.close()


# What goes on.


# Retirement.


async def test_a_retired_lane_closes_when_its_last_request_is_over() -> None:
    """Not before, and once."""
    world = World()
    async with world.lane.open_use():
        async with world.lane.open_use():
            await world.lane.retire()
            await world.lane.retire()
        assert world.closed == 0
    assert world.closed == 1


async def test_an_idle_lane_closes_as_it_retires() -> None:
    """Twice is once."""
    world = World()
    async with world.lane.open_use():
        pass
    assert world.closed == 0
    await world.lane.retire()
    await world.lane.retire()
    assert world.closed == 1


async def test_failed_request_releases_the_lane() -> None:
    """Whatever it raised."""
    world = World()

    async def fails() -> None:
        async with world.lane.open_use():
            await world.lane.retire()
            raise KeyError

    with pytest.raises(KeyError):
        await fails()
    assert world.closed == 1


# The answer.


def frames(raw: bytes) -> list[Json]:
    return [json.loads(line[6:]) for line in raw.split(b"\n\n") if line and line != b"data: [DONE]"]


def text(content: str) -> Json:
    return {"choices": [{"index": 0, "delta": {"content": content}}]}


END: Json = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


async def test_an_answer_names_its_run_chain_and_intent() -> None:
    """Streamed or not; the completion's id is the run's."""
    for stream in (False, True):
        world = World(intent=Intent("memory", "remember"))
        for chunk in (text("Hel"), text("lo"), END, None):
            world.chunks.put_nowait(chunk)
        async with request_key(world, stream=stream) as ask:
            status, headers, raw = await ask()
        assert status == 200
        assert headers["X-Context-Run-Id"] == headers["x-request-id"] == "run_7"
        assert (headers["X-Context-Chain"], headers["X-Context-Intent"]) == ("main", "memory")
        if stream:
            assert headers["Content-Type"].startswith("text/event-stream")
            assert headers["Cache-Control"] == "no-cache, no-transform" and headers["X-Accel-Buffering"] == "no"
            assert raw.endswith(b"data: [DONE]\n\n")
            content = "".join(frame["choices"][0]["delta"].get("content", "") for frame in frames(raw))
            assert {frame["id"] for frame in frames(raw)} == {"chatcmpl-7"}
        else:
            assert headers["Content-Type"] == "application/json"
            answer = json.loads(raw)
            content = answer["choices"][0]["message"]["content"]
            assert answer["id"] == "chatcmpl-7"
        assert content == "Hello"
        assert world.released == 1


@pytest.mark.parametrize(
    ("failure", "code"),
    [(GatewayError("upstream_error", "It broke."), "upstream_error"), (KeyError("secret"), "internal_error")],
)
async def test_failure_within_a_stream_is_sent_as_error_without_done(failure: Exception, code: str) -> None:
    """One frame in OpenAI's error shape, with the request id; no finish reason, no [DONE]."""
    world = World()
    for chunk in (text("Hel"), failure):
        world.chunks.put_nowait(chunk)
    async with request_key(world, stream=True) as ask:
        status, _, raw = await ask()
    assert status == 200 and b"[DONE]" not in raw and b"secret" not in raw
    *told, last = frames(raw)
    assert all(frame["choices"][0]["finish_reason"] is None for frame in told)
    assert last.keys() == {"error"} and last["error"]["code"] == code and "run_7" in last["error"]["message"]
    assert world.released == 1


async def test_idle_stream_sends_empty_keepalive_chunks() -> None:
    """With chunks of nothing, and with none behind the end."""
    world = World()
    world.lane.bounds = dataclasses.replace(world.lane.bounds, keepalive_s=0.02, status_wait_s=0.0)
    late = [None, END, text("late")]

    def heard(raw: bytes) -> None:
        while late and raw.count(b'"delta":{}') >= 3:
            world.chunks.put_nowait(late.pop())

    async with request_key(world, stream=True) as ask:
        asked = Stopwatch()
        _, _, raw = await asyncio.wait_for(ask(heard), 120)
        seconds = asked.s
    deltas = [frame["choices"][0]["delta"] for frame in frames(raw)]
    assert deltas[0] == {"role": "assistant", "content": ""} and deltas[-2:] == [{"content": "late"}, {}]
    assert 3 <= deltas[1:-2].count({}) == len(deltas) - 3 <= seconds / world.lane.bounds.keepalive_s + 1


class SilentWriter:
    """A writer of an API that sends nothing before the answer, nor in a silence, behind which the answer comes."""

    usage = None
    headers: Mapping[str, str] = MappingProxyType({})

    def __init__(self, world: World) -> None:
        self._chunks, self._coming = world.chunks, [text("late"), None]

    def build_stream_writer(self) -> "SilentWriter":
        return self

    def build_whole(self, chunks: Sequence[Chunk]) -> bytes:
        raise AssertionError(chunks)

    def build_first_frame(self) -> bytes:
        return b""

    def build_frames(self, chunk: Chunk) -> bytes:
        return repr(chunk).encode()

    def build_keepalive(self) -> bytes:
        while self._coming:
            self._chunks.put_nowait(self._coming.pop(0))
        return b""

    def finish(self) -> bytes:
        return b"end"

    def build_error_frames(self, error: GatewayError, *, request_id: str) -> bytes:
        raise AssertionError(error, request_id)


async def test_frames_of_nothing_do_not_end_a_stream() -> None:
    """An empty chunk is the end of a body in chunks."""
    world = World()
    world.lane.bounds = dataclasses.replace(world.lane.bounds, keepalive_s=0.02, status_wait_s=0.0)

    async def answer(request: web.Request) -> web.StreamResponse:
        run = await world.lane.begin(await world.exchange(), RequestKey("f" * 64, None, repeats=False))
        return await world.lane.send_answer(request, run, SilentWriter(world), streams=True)

    pages = web.Application()
    pages.router.add_get("/own", answer)
    async with assembled(pages=pages) as lane, lane.client() as client:
        answered = await exchange(client, b"GET /own HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (answered.status, answered.payload) == (200, repr(text("late")).encode() + b"end")
        await world.lane.runs.close()


async def test_requests_with_the_same_key_share_one_run() -> None:
    """The second may have waited while the first began it."""
    world = World()
    asked = RequestKey("f" * 64, ("local", "local", "k"), repeats=False)
    run = await world.lane.begin(await world.exchange(), asked)
    assert await world.lane.begin(await world.exchange(), asked) is run
    await world.lane.runs.close()


async def test_workflow_run_starts_at_the_agent_loop_of_the_chain() -> None:
    """Nothing above its agent loop has a say; a chain without one executes nothing, and says so."""
    world, asked = World(), RequestKey("f" * 64, None, repeats=False)
    use: Json = {"definition": {}, "parameters": {}}
    with pytest.raises(GatewayError, match="'main' runs no tools: add 'agent_loop' to it") as error:
        await world.lane.begin(replace(await world.exchange(), job=Job(workflow=use)), asked)
    assert (error.value.code, error.value.facts.status) == ("workflow_failed", 422)
    assert world.lane.find_loop_handler("main") is None and world.lane.find_loop_handler("nope") is None
    heard: list[str] = []

    def hears(name: str) -> Stage:
        async def stage(exchange: Exchange, call_next: Handler) -> Reply:
            heard.append(name)
            return await call_next(exchange)

        return stage

    async def core(_exchange: Exchange) -> Reply:
        return reply_of()

    links = [Link("intent", hears("intent")), Link("agent_loop", hears("agent_loop"), runs_tools=True)]
    chain = fold("main", links, core, counters=ContextCounters(), clock=Clock(ManualClock()))
    world.lane.chains = {"main": chain}
    await (await world.lane.begin(replace(await world.exchange(), job=Job(workflow=use)), asked)).wait_until_ended()
    assert heard == ["agent_loop"] and world.lane.find_loop_handler("main") is chain.handlers[1]
    await (await world.lane.begin(await world.exchange(), RequestKey("e" * 64, None, repeats=False))).wait_until_ended()
    assert heard[1:] == ["intent", "agent_loop"]
    await world.lane.runs.close()
