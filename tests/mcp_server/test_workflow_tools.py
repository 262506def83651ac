"""Workflows that MCP clients call as tools: a run of the workflow, held and owed as a whole, in both eras."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from gateways import until_read
from mcp.shared.exceptions import MCPError

from gateway.contracts.storage.store import Json
from gateway.testing.local_gateway import LocalGateway
from tests.e2e.models import Model, says
from tests.mcp_server.serving import Era, World, both_eras, keys, server, texts, world
from tests.mcp_server.test_tool_calls import Asked, cancelled
from tests.mcp_server.test_tool_calls import says as decides
from tests.support.gateway_process import GatewayProcess

Calm = dict[str, object]

TWICE: Json = {
    "name": "twice",
    "description": "Says a text, and says it again with more joy.",
    "parameters": {"text": {"required": True, "description": "What to say."}},
    "steps": [
        {"name": "one", "tool": "here.echo", "with": {"text": "{{params.text}}"}},
        {"name": "two", "tool": "here.echo", "with": {"text": "{{steps.one}}!"}},
        {"name": "told", "prompt": "It said {{steps.two}}"},
    ],
}
TEAM = keys(
    agent=["tools", "context"], boss=["tools", "context", "approve"], anna=["approve", "context"], bare=["tools"]
)
#: Runs a server once there is a file.
_BEGINS_LATE = 'while [ ! -e "$0" ]; do sleep 0.05; done; exec "$1" -m tests.mcp_server.offering'
_UNASKED_LATE: Json = {"trust_llm": "never", "assessors": {"late.echo": {"use": "calm"}}}
#: The name of the tool, and its arguments.
CALL: tuple[str, Json] = ("workflow__twice", {"text": "hi"})


def flows(folder: Path, *workflows: Json, serve: Json | None = None, **config: object) -> Json:
    """Sections of a configuration in which workflows are tools."""
    place = folder / "flows"
    place.mkdir(mode=0o700, exist_ok=True)
    for workflow in workflows or (TWICE,):
        file = place / f"{workflow['name']}.yaml"
        file.write_text(yaml.safe_dump(workflow))
        file.chmod(0o600)
    return {"serve": {"workflows": "tools", **(serve or {})}, "workflows": {"folder": str(place)}, **config}


def unlike(step: Json, **facts: object) -> Json:
    """A workflow of one step."""
    return {"name": "other", "description": "x", "steps": [step], **facts}


async def runs(made: World) -> list[Json]:
    return list((await made.get("/context/runs?kind=workflow", key="anna"))["data"])


async def owed(made: World) -> Any:
    """Wait until a run has ended whose client has not got its result."""
    return await until_read(lambda: runs(made), lambda found: any(run["state"] == "completed" for run in found))


@both_eras
async def test_workflow_tool_runs_with_the_schema_of_its_parameters(era: Era, calm: Calm, tmp_path: Path) -> None:
    """A call is a run of the caller, with the client's name on record, and its result is that of the last step."""
    async with world(**flows(tmp_path, keys=TEAM, **calm)) as made, made.client(era, key="agent") as client:
        tool = next(tool for tool in (await client.list_tools()).tools if tool.name == "workflow__twice")
        assert tool.description == TWICE["description"] and tool.input_schema["required"] == ["text"]
        assert (await client.list_prompts()).prompts and all(
            prompt.name != "twice" for prompt in (await client.list_prompts()).prompts
        )
        for name in ("workflow__twice", "workflow.twice"):
            result = await client.call_tool(name, {"text": "hi"})
            assert (texts(result), result.is_error) == ("It said hi!", False)
        run = (await runs(made))[0]
        assert (run["workflow"], run["caller"], run["state"]) == ("twice", "agent", "completed")
        assert run["client"]["name"] == "mcp" and (result.meta or {})["twolane/run"] == run["id"]


async def test_workflows_setting_exposes_prompts_tools_both_or_neither(calm: Calm, tmp_path: Path) -> None:
    """As `mcp.serve.workflows` says."""
    for how in ("prompts", "tools", "both", "off"):
        async with world(**flows(tmp_path, serve={"workflows": how}, **calm)) as made, made.client() as client:
            prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert ("twice" in prompts) == (how in ("prompts", "both"))
            assert ("workflow__twice" in tools) == (how in ("tools", "both"))


@both_eras
async def test_invalid_workflow_parameters_start_no_run(era: Era, calm: Calm, tmp_path: Path) -> None:
    """The client's model reads what is wrong."""
    async with world(**flows(tmp_path, keys=TEAM, **calm)) as made, made.client(era, key="agent") as client:
        for arguments in ({}, {"text": "hi", "more": 1}, {"text": 5}):
            result = await client.call_tool("workflow__twice", arguments)
            assert result.is_error and ("text" in texts(result) or "more" in texts(result))
        assert await runs(made) == []


@both_eras
async def test_workflow_tool_requires_the_context_scope_and_every_step_tool(
    era: Era, calm: Calm, tmp_path: Path
) -> None:
    """Else there is no such tool, whichever of the two lists is narrower. At the path of a service there is none."""
    narrow = [
        {**one, "name": name, "tools": tools}
        for (name, tools), one in zip(
            {"both": ["workflow.*", "here.echo"], "flow": ["workflow.*"], "steps": ["here.*"]}.items(),
            keys(both=["tools", "context"], flow=["tools", "context"], steps=["tools", "context"]),
            strict=True,
        )
    ]
    config = flows(tmp_path, serve={"tools": ["workflow.*", "here.*"]}, keys=[*TEAM, *narrow], **calm)
    async with world(**config) as made:
        for key, path, has in (
            ("agent", "", True),
            ("both", "", True),
            ("bare", "", False),
            ("flow", "", False),
            ("steps", "", False),
            ("agent", "/here", False),
        ):
            async with made.client(era, key=key, path=path) as client:
                assert ("workflow__twice" in {tool.name for tool in (await client.list_tools()).tools}) == has
                if has:
                    assert texts(await client.call_tool(*CALL)) == "It said hi!"
                else:
                    with pytest.raises(MCPError, match="no such tool"):
                        await client.call_tool(*CALL)
    async with world(**flows(tmp_path, serve={"tools": ["workflow.*"]}, **calm)) as made, made.client(era) as client:
        assert (await client.list_tools()).tools == []


async def test_find_tools_finds_a_workflow(calm: Calm, tmp_path: Path) -> None:
    """By its name and its description, and call_tool calls it."""
    async with world(**flows(tmp_path, serve={"search_over": 2}, **calm)) as made, made.client() as client:
        assert "workflow__twice" in texts(await client.call_tool("find_tools", {"query": "joy"}))
        called = await client.call_tool("call_tool", {"name": CALL[0], "arguments": CALL[1]})
        assert texts(called) == "It said hi!"


@both_eras
async def test_failed_workflow_returns_an_error_naming_the_step(era: Era, calm: Calm, tmp_path: Path) -> None:
    """Of a tool, and of a model that cannot be asked."""
    fails = unlike({"name": "bad", "tool": "here.fail"})
    asks = unlike({"name": "said", "model": "Hi"}, name="asks")
    async with world(**flows(tmp_path, fails, asks, **calm)) as made, made.client(era) as client:
        result = await client.call_tool("workflow__other", {})
        assert result.is_error and "'bad'" in texts(result) and "it does not work" in texts(result)
        result = await client.call_tool("workflow__asks", {})
        assert result.is_error and "'said'" in texts(result)


async def test_a_model_step_gets_no_credential_of_the_client(tmp_path: Path) -> None:
    """The upstream's own key goes there, and nothing that the MCP client sent; bounds on models hold."""
    async with Model(says("Hello.")) as model:
        upstreams = [{"name": "up", "base_url": model.upstream.base_url, "api_key": "sk-up"}]
        bound = {**keys(bound=["tools", "context"])[0], "models": ["small-*"]}
        asks = unlike({"name": "said", "model": "Hi"})
        async with world(**flows(tmp_path, asks, keys=[*TEAM, bound], upstreams=upstreams)) as made:
            async with made.client(key="agent") as client:
                assert texts(await client.call_tool("workflow__other", {})) == "Hello."
            async with made.client(key="bound") as client:
                with pytest.raises(MCPError, match="may not use this model"):
                    await client.call_tool("workflow__other", {})
        (request,) = model.upstream.requests
        assert request.list_values(b"authorization") == [b"Bearer sk-up"] and not request.list_values(
            b"mcp-protocol-version"
        )


@both_eras
async def test_each_held_workflow_step_requests_its_own_approval(era: Era, tmp_path: Path) -> None:
    """Two questions in one call, each with exactly what would run; both are on record with the client's name."""
    async with world(**flows(tmp_path, keys=TEAM)) as made:
        person = Asked(decides("approve"), decides("approve"))
        async with made.client(era, key="boss", elicitation_callback=person) as client:
            result = await client.call_tool(*CALL)
            assert (texts(result), result.is_error) == ("It said hi!", False)
        one, two = (question.message for question in person.questions)
        assert 'text: "hi"' in one and 'text: "hi!"' in two
        done = await made.approvals(key="anna", state="done")
        assert [(each["via"], each["client"]["name"]) for each in done] == [("mcp", "mcp")] * 2
        (run,) = await runs(made)
        assert run["state"] == "completed" and run["id"] == done[0]["run_id"] == done[1]["run_id"]


@both_eras
async def test_rejected_step_ends_the_workflow(era: Era, tmp_path: Path) -> None:
    """The result says what was rejected; the first step stays done."""
    async with world(**flows(tmp_path, keys=TEAM)) as made:
        person = Asked(decides("approve"), decides("reject", reason="not today"))
        async with made.client(era, key="boss", elicitation_callback=person) as client:
            result = await client.call_tool(*CALL)
        assert result.is_error and "not today" in texts(result) and "1 earlier call" in texts(result)
        assert [run["state"] for run in await runs(made)] == ["rejected"]


@both_eras
async def test_step_decided_elsewhere_proceeds_to_the_next_question(era: Era, tmp_path: Path) -> None:
    """Though the client's user still has the first one before them."""
    async with world(**flows(tmp_path, keys=TEAM)) as made:
        open_ = asyncio.Event()
        asked: list[str] = []

        async def person(ctx: object, params: Any) -> Any:
            asked.append(params.message)
            if len(asked) == 1:
                await open_.wait()
            return decides("approve")

        async with made.client(era, key="boss", elicitation_callback=cast(Any, person)) as client:
            calling = asyncio.create_task(client.call_tool(*CALL))
            await until_read(lambda: _length(asked))
            await made.decide("approve", key="anna")
            if (
                era == "auto"
            ):  # a question of this era is an answer: its client comes back once it has an answer of its own
                open_.set()
            assert texts(await calling) == "It said hi!"
        assert 'text: "hi!"' in asked[1] and len(asked) == 2


async def _length(found: list[str]) -> int:
    return len(found)


async def _copied(found: list[Any]) -> list[Any]:
    return [*found]


@both_eras
async def test_client_without_elicitation_retries_a_workflow_for_its_result(era: Era, tmp_path: Path) -> None:
    """To the same run, from question to question; once it has the result, the same call is a new one."""
    async with world(**flows(tmp_path, serve={"wait": "1s"}, keys=TEAM)) as made:
        async with made.client(era, key="agent") as client:
            first = await client.call_tool(*CALL)
            assert first.is_error and "has NOT run" in texts(first)
            await made.decide("approve", key="anna")
            second = await client.call_tool(*CALL)
            assert second.is_error and 'text: "hi!"' in texts(second)
            await made.decide("approve", key="anna")
            await owed(made)
            assert texts(await client.call_tool(*CALL)) == "It said hi!"
            assert len(await runs(made)) == 1
            assert "has NOT run" in texts(await client.call_tool(*CALL))
        assert len(await runs(made)) == 2


@both_eras
async def test_waiting_client_gets_the_workflow_result_after_decisions_elsewhere(era: Era, tmp_path: Path) -> None:
    """And hears of each step, with numbers that count the steps."""
    async with world(**flows(tmp_path, keys=TEAM)) as made, made.client(era, key="agent") as client:
        told: list[tuple[float, float | None, str | None]] = []

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            told.append((progress, total, message))

        async def heard(word: str, over: int) -> None:
            await until_read(
                lambda: _copied(told),
                lambda told: any(
                    over <= n < over + 1 and total == 3 and word in (text or "") for n, total, text in told
                ),
            )

        calling = asyncio.create_task(client.call_tool(*CALL, progress_callback=progressed))
        for over in (0, 1):
            await heard("waits for the approval", over)
            await made.decide("approve", key="anna")
            await until_read(
                lambda: made.approvals(key="anna"), lambda found, over=over: [x["step"] for x in found] != [over]
            )
        assert texts(await calling) == "It said hi!"
        assert "Step 1 of 3: one" in [text for _, _, text in told]


async def test_workflow_steps_can_be_approved_in_a_chat(tmp_path: Path) -> None:
    """And gets the result, as the client of the call does, which hears nothing of the chat."""
    async with world(**flows(tmp_path, keys=TEAM)) as made, made.client(key="agent") as client:
        calling = asyncio.create_task(client.call_tool(*CALL))
        said = ""
        for step in (0, 1):
            (pending,) = await until_read(
                lambda: made.approvals(key="anna"), lambda found, step=step: [one["step"] for one in found] == [step]
            )
            message = {"role": "user", "content": f"approve {pending['id']} {pending['check_word']}"}
            body = {"model": "m", "messages": [message]}
            status, answer = await made.post("/context/v1/chat/completions", body, **{"X-Gateway-Key": "anna"})
            assert status == 200, answer
            said = answer["choices"][0]["message"]["content"]
        assert "It said hi!" in said and texts(await calling) == "It said hi!"


@both_eras
async def test_a_cancelled_workflow_withdraws_its_question(era: Era, tmp_path: Path) -> None:
    """What ran before is said to the same call, once; then it begins anew."""
    config = flows(tmp_path, keys=TEAM, metrics={"public": True})
    async with world(**config) as made, made.client(era, key="agent") as client:
        calling = asyncio.create_task(client.call_tool(*CALL))
        await made.decide("approve", key="anna")
        await until_read(lambda: made.approvals(key="anna"), lambda found: [one["step"] for one in found] == [1])
        calling.cancel()
        await until_read(lambda: made.approvals(key="anna"), lambda found: not found)
        await until_read(lambda: cancelled(made), lambda count: count > 0)
        assert [run["state"] for run in await runs(made)] == ["cancelled"]
        again = await client.call_tool(*CALL)
        assert again.is_error and "cancelled" in texts(again) and "1 earlier call" in texts(again)
        calling = asyncio.create_task(client.call_tool(*CALL))
        await until_read(lambda: made.approvals(key="anna"), lambda found: [one["step"] for one in found] == [0])
        calling.cancel()
        await until_read(lambda: made.approvals(key="anna"), lambda found: not found)


@both_eras
async def test_concurrent_equal_workflow_calls_share_one_run(era: Era, tmp_path: Path) -> None:
    """Two clients of one key that come at once: one question, one run that ends, one result for both."""
    async with world(**flows(tmp_path, keys=TEAM)) as made:
        async with made.client(era, key="agent") as one, made.client(era, key="agent") as other:
            calling = [asyncio.create_task(client.call_tool(*CALL)) for client in (one, other)]
            await made.decide("approve", key="anna")
            await until_read(lambda: made.approvals(key="anna"), lambda found: [one["step"] for one in found] == [1])
            await made.decide("approve", key="anna")
            assert [texts(await each) for each in calling] == ["It said hi!"] * 2
        assert [run["state"] for run in await runs(made)].count("completed") == 1


async def test_workflow_with_an_idempotency_key_runs_once(calm: Calm, tmp_path: Path) -> None:
    """Also when it failed behind an effect: the client is told so again."""
    fails = unlike({"name": "bad", "tool": "here.fail"})
    async with world(**flows(tmp_path, TWICE, fails, keys=TEAM, **calm)) as made, made.client(key="agent") as client:
        for name, arguments, text in ((*CALL, "It said hi!"), ("workflow__other", {}, "it does not work")):
            word: Any = {"twolane/idempotency-key": name}
            for _ in range(2):
                assert text in texts(await client.call_tool(name, arguments, meta=word))
        assert len(await runs(made)) == 2


async def test_service_named_workflow_disables_workflow_tools(
    calm: Calm, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that comes later, such as by the page of services: no workflow is a tool then, and the log says so."""
    config = flows(tmp_path, keys=[*TEAM, *keys(root=["admin"])], **calm)
    async with world(**config) as made, made.client(key="agent") as client:
        assert texts(await client.call_tool(*CALL)) == "It said hi!"
        status, answer = await made.post("/mcp/services", {"name": "workflow", **server()}, key="root")
        assert status < 300, answer
        listed = await until_read(
            lambda: client.list_tools(), lambda found: any(t.name == "workflow__echo" for t in found.tools)
        )
        assert "workflow__twice" not in {tool.name for tool in listed.tools}
        with pytest.raises(MCPError):
            await client.call_tool(*CALL)
    assert "no workflow is a tool of MCP clients" in caplog.text


async def test_a_step_waits_for_its_service_that_is_starting(calm: Calm, tmp_path: Path) -> None:
    """As those of a new gateway are."""
    begins = tmp_path / "begins"
    late = {**server(), "command": "sh", "args": ["-c", _BEGINS_LATE, str(begins), sys.executable]}
    step: Json = {"name": "one", "tool": "late.echo", "with": {"text": "hi"}}
    config = flows(tmp_path, unlike(step), keys=TEAM, plugins=calm["plugins"], risk=_UNASKED_LATE)
    mcp = {"servers": {"here": server(), "late": late}, "serve": {"wait": "30s", **config.pop("serve")}}
    async with world(mcp=mcp, **config) as made, made.client(key="agent") as client:
        call = asyncio.create_task(client.call_tool("workflow__other", {}))
        await until_read(lambda: runs(made), lambda found: [run["state"] for run in found] == ["running"])
        begins.touch()
        assert texts(await call) == "hi"


@both_eras
async def test_held_workflow_survives_a_sigkill(era: Era, tmp_path: Path) -> None:
    """Held at its second step, and again with its result owed; a client that comes back gets it, and once."""
    store = f"sqlite:///{tmp_path}/gateway.db"
    config: Json = flows(tmp_path, keys=TEAM, store=store, risk={"trust_llm": "never"})
    serve = {**config.pop("serve"), "wait": "1s"}
    config |= {
        "mcp": {"servers": {"here": server()}, "serve": serve},
        "upstreams": [{"name": "up", "base_url": "http://127.0.0.1:9/v1"}],
    }
    async with GatewayProcess(yaml.safe_dump(config)) as gateway:
        made = World(cast(LocalGateway, gateway), config)
        await _called_until(made, era, lambda text: "has NOT run" in text)
        await made.decide("approve", key="anna")
        await until_read(lambda: made.approvals(key="anna"), lambda found: [one["step"] for one in found] == [1])
        await _killed(gateway)
        assert 'text: "hi!"' in await _called_until(made, era, lambda text: "has NOT run" in text)
        await made.decide("approve", key="anna")
        await owed(made)
        await _killed(gateway)
        assert await _called_until(made, era, lambda text: bool(text)) == "It said hi!"
        assert [run["state"] for run in await runs(made)] == ["completed"]
        assert "has NOT run" in await _called_until(made, era, lambda text: bool(text))


@both_eras
async def test_workflow_call_is_joined_across_two_workers(era: Era, tmp_path: Path) -> None:
    """The same call joins the run at whichever worker it comes to; each step is asked about once, and runs once."""
    store = f"sqlite:///{tmp_path}/gateway.db"
    config: Json = flows(tmp_path, keys=TEAM, store=store, risk={"trust_llm": "never"}, workers=2)
    serve = {**config.pop("serve"), "wait": "0.2s"}
    config |= {
        "mcp": {"servers": {"here": server()}, "serve": serve},
        "upstreams": [{"name": "up", "base_url": "http://127.0.0.1:9/v1"}],
    }
    async with GatewayProcess(yaml.safe_dump(config)) as gateway:
        made = World(cast(LocalGateway, gateway), config)
        for step in (0, 1):
            for _ in range(6):  # each on a connection of its own, to any of them
                await _called_until(made, era, lambda text: "has NOT run" in text)
                (asked,) = await until_read(lambda: made.approvals(key="anna"))
                assert asked["step"] == step
            await made.decide("approve", key="anna")
            if step == 0:
                await until_read(
                    lambda: made.approvals(key="anna"), lambda found: [one["step"] for one in found] == [1]
                )
        await owed(made)
        assert await _called_until(made, era, lambda text: "has NOT run" not in text) == "It said hi!"
        assert [run["state"] for run in await runs(made)] == ["completed"]
        assert len(await made.approvals(key="anna", state="done")) == 2
        assert "has NOT run" in await _called_until(made, era, lambda text: bool(text))  # a new one


async def _killed(gateway: GatewayProcess) -> None:
    await gateway.kill()
    await gateway.start()


async def _called_until(made: World, era: Era, fits: Callable[[str], bool]) -> str:
    """Return the text of the first result that fits. The service may still be starting."""

    async def called() -> str:
        async with made.client(era, key="agent") as client:
            return texts(await client.call_tool(*CALL))

    found: Awaitable[str] = until_read(called, fits)
    return await found
