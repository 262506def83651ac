"""One trace of a run: its models, tools, approvals and servers, in whatever process each of them was at work."""

import asyncio
import json
from pathlib import Path

from collector import SENDER, TRACE, TRACEPARENT, Collector, Seen, tree
from functional.through import HOSTS, get, post
from gateways import exchange, until, until_read

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Response, connect
from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

from .asking import GO, HOLD, asks, birth, born, ranch
from .models import Json, Model, call, says
from .serving import asks as asks_server
from .serving import behaving
from .serving import until as until_served
from .talking import NO_WORKFLOWS, World, stages, talking

PARENT = {"traceparent": TRACEPARENT, "tracestate": "congo=t61"}
SECRET = "the-hidden-words"


def of_trace(spans: list[Seen]) -> list[Seen]:
    return [one for one in spans if one.trace == TRACE]


async def until_state(world: World, run_id: str, state: str) -> None:
    await until_read(lambda: world.get(f"/context/runs/{run_id}"), lambda run: run.json["state"] == state)


async def test_run_trace_covers_models_tools_approvals_and_servers(tmp_path: Path) -> None:
    answers = asks(), asks_server("srv.echo", text=SECRET), says("Done.")
    async with Collector() as collector:
        tracing = {"endpoint": collector.url, "propagate": ["mcp"]}
        servers = {"servers": {"srv": behaving()}}
        async with talking(*answers, tools=ranch(tmp_path), mcp=servers, tracing=tracing) as world:
            await until_served(world, "srv")
            asked = await world.chat(f"{GO} {SECRET}", headers=PARENT)
            (approval,) = asked.asks
            await world.decide(approval["id"], "approve")
            await until_state(world, approval["run_id"], "completed")
            assert born(tmp_path) == ["Di"]
        spans = of_trace(collector.spans)
        assert tree(spans, top=SENDER) == [
            "POST /context/v1/chat/completions",
            "  invoke_agent assistant",
            "    stage intent",
            "      stage memory",
            "        stage prompt_enhancer",
            "    chat m",
            "      POST",
            "    approval execute_sql",
            "    execute_tool execute_sql",
            "    chat m",
            "      POST",
            "    execute_tool srv.echo",
            "    chat m",
            "      POST",
        ]
        assert len(tree(spans, top=SENDER)) == len(spans)
        assert not [one.name for one in spans if SECRET in one.text or "INSERT" in one.text or one.failed]
        by_name = {one.name: one for one in spans}
        assert (
            by_name["chat m"].attributes.items()
            >= {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "m",
                "gen_ai.request.stream": True,
                "server.address": "127.0.0.1",
                "gen_ai.response.model": "upstream-model",
                "gen_ai.response.finish_reasons": ("stop",),
                "gen_ai.usage.input_tokens": 11,
                "gen_ai.usage.output_tokens": 7,
            }.items()
        )
        assert by_name["execute_tool srv.echo"].kind == "client"
        assert (
            by_name["execute_tool srv.echo"].attributes.items()
            >= {
                "gen_ai.tool.name": "srv.echo",
                "mcp.method.name": "tools/call",
                "network.transport": "pipe",
            }.items()
        )
        decided = by_name["approval execute_sql"].attributes
        assert (decided["twolane.approval.state"], decided["twolane.approval.via"]) == ("approved", "rest")
        assert by_name["invoke_agent assistant"].attributes["twolane.run.id"] == approval["run_id"]


def process_config(folder: Path, model: Model, collector: Collector) -> str:
    config: Json = {
        "upstreams": [{"name": "up", "base_url": model.upstream.base_url}],
        "store": f"sqlite:///{folder / 'runs.db'}",
        "chains": stages(),
        "workflows": NO_WORKFLOWS,
        "allowed_hosts": HOSTS,
        "tools": ranch(folder),
        "tracing": {"endpoint": collector.url},
    }
    return json.dumps(config)


async def sent_to(gateway: GatewayProcess, path: str, body: Json, *lines: bytes) -> Response:
    content = json.dumps(body).encode()
    async with connect(gateway.host, gateway.port) as peer:
        return await exchange(peer, post(content, path.encode(), b"Content-Type: application/json", *lines))


async def got_from(gateway: GatewayProcess, path: str) -> Json:
    async with connect(gateway.host, gateway.port) as peer:
        found: Json = json.loads((await exchange(peer, get(path.encode()))).payload)
        return found


async def test_trace_survives_a_kill_between_question_and_decision(tmp_path: Path) -> None:
    """The question is asked by one process, which is killed; the decision is made in the next one."""
    async with Collector() as collector, Model(asks(), says("Done.")) as model:
        body = {"model": "m", "messages": [{"role": "user", "content": GO}]}
        async with GatewayProcess(process_config(tmp_path, model, collector)) as gateway:
            lines = [f"{name}: {value}".encode() for name, value in PARENT.items()]
            assert (await sent_to(gateway, "/context/v1/chat/completions", body, *lines)).status == 200
            (approval,) = (await got_from(gateway, "/context/approvals"))["data"]
            await collector.until("POST /context/v1/chat/completions", "chat m")
            first = len(collector.spans)
            await gateway.kill()
            await gateway.start()
            assert (
                await sent_to(gateway, f"/context/approvals/{approval['id']}", {"decision": "approve"})
            ).status == 200
            run = f"/context/runs/{approval['run_id']}"
            await until_read(lambda: got_from(gateway, run), lambda found: found["state"] == "completed")
        spans = of_trace(collector.spans)
        assert tree(spans, top=SENDER) == [
            "POST /context/v1/chat/completions",
            "  invoke_agent assistant",
            "    stage intent",
            "      stage memory",
            "        stage prompt_enhancer",
            "    chat m",
            "      POST",
            "    approval execute_sql",
            "    execute_tool execute_sql",
            "    chat m",
            "      POST",
        ]
        assert len(tree(spans, top=SENDER)) == len(spans) > first
        processes = {one.name: one.resource["service.instance.id"] for one in spans}
        assert processes["stage intent"] != processes["execute_tool execute_sql"] == processes["invoke_agent assistant"]
        assert born(tmp_path) == ["Di"] and {one.state for one in spans} == {"congo=t61"}


async def test_trace_of_a_killed_held_request_keeps_the_whole_run(tmp_path: Path) -> None:
    """Its answer was held open for the decision, which comes in the next process."""
    async with Collector() as collector, Model(asks(), says("Done.")) as model:
        body = {"model": "m", "messages": [{"role": "user", "content": GO}]}
        async with GatewayProcess(process_config(tmp_path, model, collector)) as gateway:
            lines = [f"{name}: {value}".encode() for name, value in (*PARENT.items(), *HOLD.items())]
            asking = asyncio.create_task(sent_to(gateway, "/context/v1/chat/completions", body, *lines))
            found = await until_read(lambda: got_from(gateway, "/context/approvals"), lambda page: page["data"])
            (approval,) = found["data"]
            await collector.until("chat m", "stage intent")
            await gateway.kill()
            await asyncio.gather(asking, return_exceptions=True)
            await gateway.start()
            decision = {"decision": "approve"}
            assert (await sent_to(gateway, f"/context/approvals/{approval['id']}", decision)).status == 200
            run = f"/context/runs/{approval['run_id']}"
            await until_read(lambda: got_from(gateway, run), lambda found: found["state"] == "completed")
        spans = of_trace(collector.spans)
        (whole,) = [one for one in spans if one.name == "invoke_agent assistant"]
        assert whole.parent not in {one.id for one in spans} | {SENDER}
        assert tree(spans, top=whole.parent) == [
            "invoke_agent assistant",
            "  stage intent",
            "    stage memory",
            "      stage prompt_enhancer",
            "  chat m",
            "    POST",
            "  approval execute_sql",
            "  execute_tool execute_sql",
            "  chat m",
            "    POST",
        ]
        assert len(spans) == 10 and born(tmp_path) == ["Di"]


async def test_trace_context_is_sent_where_propagation_is_enabled(tmp_path: Path) -> None:
    """In place of a client's or a model's, in whatever case its name is."""
    async with Collector() as collector, FakeUpstream(serve(build_answer(200, b"page"))) as page:
        others = {"Traceparent": TRACEPARENT.replace(SENDER, "f" * 16), "TraceState": "model=t1"}
        asked = call("http_request", url=page.base_url + "/x", headers=others, risk_level="low")
        tracing = {"endpoint": collector.url, "propagate": ["upstreams", "tools"]}
        tools = {"http_request": {"private_networks": True}}
        answers = says(json.dumps(asked)), says("Done.")
        async with talking(*answers, tools=tools, tracing=tracing) as world:
            sent = {name.title(): value for name, value in PARENT.items()}
            assert (await world.chat("read it", headers=sent)).text == "Done."
            model, server = world.model.upstream.requests[0].raw_head, page.requests[0].raw_head
        known = {one.id: one.name for one in of_trace(collector.spans)}
        for head, name in ((model, "POST"), (server, "execute_tool http_request")):
            (line,) = [line for line in head.decode().splitlines() if line.lower().startswith("traceparent")]
            assert line.split("-")[1] == TRACE and known[line.split("-")[2]] == name
            assert head.lower().count(b"tracestate:") == head.count(b"racestate: congo=t61") == 1


async def test_trace_context_is_not_propagated_by_default(tmp_path: Path) -> None:
    """A model gets the fields of the client as they came; a tool gets none."""
    async with Collector() as collector, FakeUpstream(serve(build_answer(200, b"page"))) as page:
        asked = call("http_request", url=page.base_url + "/x", risk_level="low")
        tools, answers = {"http_request": {"private_networks": True}}, (says(json.dumps(asked)), says("Done."))
        async with talking(*answers, tools=tools, tracing={"endpoint": collector.url}) as world:
            await world.chat("read it", headers=PARENT)
            assert world.model.upstream.requests[0].raw_head.count(TRACEPARENT.encode()) == 1
            assert b"traceparent" not in page.requests[0].raw_head.lower()


async def test_rejected_call_and_failed_run_are_marked_in_spans(tmp_path: Path) -> None:
    async with Collector() as collector:
        refused = says(status=400, content=b'{"error": {"message": "no"}}')
        answers = asks(birth("Ed")), refused
        async with talking(*answers, tools=ranch(tmp_path), tracing={"endpoint": collector.url}) as world:
            (approval,) = (await world.chat(GO, headers=PARENT)).asks
            await world.decide(approval["id"], "reject")
            await until_state(world, approval["run_id"], "rejected")
            assert (
                await world.chat("another", headers={"traceparent": TRACEPARENT.replace(SENDER, "f" * 16)})
            ).status == 400
        spans = of_trace(collector.spans)
        (decided,) = [one for one in spans if one.name == "approval execute_sql"]
        assert decided.attributes["twolane.approval.state"] == "rejected"
        runs = [one for one in spans if one.name == "invoke_agent assistant"]
        assert [one.attributes["twolane.run.outcome"] for one in runs] == ["rejected", "error"]
        assert [one.attributes.get("error.type") for one in runs] == [None, "upstream_rejected"]
        assert [one.attributes["error.type"] for one in spans if one.name == "chat m" and one.failed] == [
            "upstream_rejected"
        ]


async def test_refused_call_leaves_one_span(tmp_path: Path) -> None:
    """Once, below its run, also where a person decides on another call of its group first."""
    async with Collector() as collector:
        answers = asks(birth("Ed"), call("no_such_tool")), says("Done.")
        async with talking(*answers, tools=ranch(tmp_path), tracing={"endpoint": collector.url}) as world:
            (approval,) = (await world.chat(GO, headers=PARENT)).asks
            await world.decide(approval["id"], "approve")
            await until_state(world, approval["run_id"], "completed")
        spans = of_trace(collector.spans)
        (refused,) = [one for one in spans if one.name == "execute_tool"]
        (run,) = [one for one in spans if one.name == "invoke_agent assistant"]
        assert refused.parent == run.id and refused.attributes["error.type"] == "unknown_tool"
        assert refused.attributes["gen_ai.tool.name"] == "no_such_tool"


async def test_workflow_span_has_the_workflow_name(tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    steps = "steps:\n  - {name: look, tool: file_operations, with: {operation: read, path: notes.txt}}\n"
    (tmp_path / "flows" / "look.yaml").write_text(f"name: look\ndescription: Looks.\n{steps}")
    async with Collector() as collector:
        facts = {"workflows": {"folder": str(tmp_path / "flows")}, "tools": ranch(tmp_path)}
        async with talking(tracing={"endpoint": collector.url}, **facts) as world:
            await world.chat("/look", headers=PARENT)
        spans = of_trace(collector.spans)
        assert [one.strip() for one in tree(spans, top=SENDER)][1:] == [
            "invoke_workflow look",
            "execute_tool file_operations",
        ]


async def test_log_lines_of_a_run_have_its_trace(tmp_path: Path) -> None:
    async with Collector() as collector:
        tracing = {"endpoint": collector.url}
        async with talking(says("Hi."), tracing=tracing, logging={"access": True}) as world:
            await world.chat("hi", headers=PARENT)
            await until(lambda: f'"trace_id":"{TRACE}"' in world.gateway.get_log())


async def test_run_without_tracing_stores_no_trace_data(tmp_path: Path) -> None:
    async with talking(asks(), says("Done."), tools=ranch(tmp_path)) as world:
        (approval,) = (await world.chat(GO, headers=PARENT)).asks
        assert isinstance(world.gateway, LocalGateway)
        store = world.gateway.gateway._shared.store
        run = await store.run(approval["run_id"], tenant="local")
        assert run is not None and b'"trace"' not in run.request
