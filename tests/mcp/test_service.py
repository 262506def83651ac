"""The tools of an MCP server as the gateway has them."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from measuring import Effort
from pydantic import ValidationError

from gateway.config.schema.mcp import McpServer
from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Host
from gateway.contracts.service import ManagedService
from gateway.contracts.tools import ServiceSource, ToolCall
from gateway.mcp.server_facts import Config
from gateway.mcp.service import PLUGIN, McpService
from tests.mcp.mcp_host import Changes, Clock, Counters
from tests.mcp.misbehaving import command

EXCHANGE = Exchange(id="run_1", body={}, caller=Caller("c", "t", frozenset()), chain="main")


@dataclass
class Desk:
    """`contracts.Host`, as far as this plugin looks."""

    counters: Counters = field(default_factory=Counters)
    clock: Clock = field(default_factory=Clock)


def built(*behaviour: object, **options: Any) -> McpService:
    program, *args = command(*map(str, behaviour))
    config = Config.model_validate({"name": "box", "command": program, "args": args, **options})
    return cast("McpService", PLUGIN.build(config, cast("Host", Desk())))


@asynccontextmanager
async def running(*behaviour: object, **options: Any) -> AsyncIterator[McpService]:
    service, changes = built(*behaviour, **options), Changes()
    service.watch(changes)
    service.start()
    try:
        await changes.until(lambda: service.get_service().running)
        yield service
    finally:
        await service.close()


async def called(service: McpService, tool: str, **arguments: Any) -> tuple[bool, str]:
    call = ToolCall(id="c", tool=f"box.{tool}", arguments=arguments)
    assert await service.refusal(call, EXCHANGE) is None
    result = await service.call(call, EXCHANGE)
    return result.ok, result.content


async def test_intent_layer_receives_description_keywords_and_tools_of_a_service() -> None:
    """Name, description, keywords, and one line for each tool; nothing runs before it is started."""
    service = built("ok", description="Odds and ends.", trigger_keywords=["box", "盒子"])
    assert isinstance(service, ManagedService) and isinstance(service, ServiceSource)
    facts = service.get_service()
    assert (facts.name, facts.description, facts.trigger_keywords) == ("box", "Odds and ends.", ("box", "盒子"))
    assert not facts.running and not facts.tools and service.find_spec("echo") is None
    assert await service.list_tools() == [] and service.get_condition().state == "stopped"
    async with running("ok") as service:
        facts = service.get_service()
        assert (facts.running, facts.description) == (True, "box")
        assert facts.tools["add"] == "Adds two numbers." and not facts.changed
        assert service.get_service() is facts


async def test_expensive_output_schema_check_is_bounded(tmp_path: Path) -> None:
    """The server wrote the schema and the value. The text of the result is there, and the content is not passed on."""
    weighty = {"type": "object", "properties": {"n": {"items": {"allOf": [{"type": "string"}] * 500}}}}
    slow = {"type": "object", "properties": {"s": {"allOf": [{"not": {"pattern": "(?:a|b)*a(?:a|b){300}c"}}] * 40}}}
    said = [{"type": "text", "text": "done"}]
    tools = [
        {
            "name": name,
            "inputSchema": {"type": "object"},
            "outputSchema": schema,
            "result": {"content": said, "structuredContent": content},
        }
        for name, schema, content in (("many", weighty, {"n": [1] * 400}), ("long", slow, {"s": "ab" * 10_000}))
    ]
    (file := tmp_path / "tools.json").write_text(json.dumps(tools))
    async with running("defined", file) as service:
        for name, reason in (("many", "is not of type"), ("long", "it is too large to be checked")):
            effort = Effort()
            result = await service.call(ToolCall(id="c", tool=f"box.{name}", arguments={}), EXCHANGE)
            assert (result.ok, result.content, result.structured) == (True, "done", None)
            assert result.unfit is not None and reason in result.unfit
            assert effort.cpu_s < 1


async def test_service_tool_has_category_trust_and_idempotency_settings() -> None:
    """A stranger's, of the service's category, with its schema; the operator says what may run twice."""
    async with running("ok", idempotent=["echo"]) as service:
        specs = {spec.name: spec for spec in await service.list_tools()}
        echo = service.find_spec("echo")
        assert echo is specs["echo"] is service.find_spec("echo") and echo.description == "Says the text again."
        assert echo.parameters["required"] == ["text"] and echo.category == "box"
        assert all(spec.untrusted and not spec.requires_approval for spec in specs.values())
        assert [name for name, spec in specs.items() if spec.idempotent] == ["echo"]
        assert service.find_spec("nope") is None
    async with running("ok", requires_approval=True) as service:
        assert all(spec.requires_approval for spec in await service.list_tools())


async def test_service_calls_return_results_and_failures() -> None:
    """By the inside name; text, structured content, pictures, failures, and what is not there."""
    async with running("ok") as service:
        assert await called(service, "echo", text="hello") == (True, "hello")
        assert await called(service, "structured") == (True, '{"sum":3}')
        assert await called(service, "image") == (True, "[image image/png, 70 bytes]\na pixel")
        assert await called(service, "fail") == (False, "it does not work")
        ok, text = await called(service, "nope")
        assert not ok and "Unknown tool: nope" in text
    assert await called(service, "echo") == (
        False,
        "the service 'box' is not running just now. Say so, and go on without it.",
    )


async def test_tool_is_changed_until_its_definition_is_accepted() -> None:
    """It is changed until it is accepted; one that nobody has seen before is not."""
    async with running("ok") as service:
        definitions = dict(service.list_definitions())
        assert len(definitions["echo"]) == 64
        service.accept({**definitions, "add": "0" * 64})
        assert service.get_service().changed == {"add"}
        del definitions["echo"]
        service.accept(definitions)
        assert service.get_service().changed == frozenset()


async def test_definition_changed_between_two_starts_is_reported_as_changed(tmp_path: Path) -> None:
    """M14: what was pinned before does not fit any more."""
    async with running("changed", tmp_path / "starts") as service:
        first = service.list_definitions()
    async with running("changed", tmp_path / "starts") as service:
        service.accept(first)
        assert service.get_service().changed == {"echo"}


async def test_a_server_gets_its_own_environment_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """M18: what is configured for it, and nothing of the gateway's secrets; in its own folder."""
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    async with running("ok", env={"TOKEN": "mine"}, cwd=str(tmp_path)) as service:
        _, environment = await called(service, "env")
        assert "canary" not in environment and '"TOKEN": "mine"' in environment
        assert await called(service, "cwd") == (True, str(tmp_path.resolve()))


async def test_a_service_that_is_turned_off_stays_stopped() -> None:
    """`enabled: false`."""
    service = built("ok", enabled=False)
    service.start()
    assert service.get_condition().state == "stopped"
    await service.stop()
    await service.close()


async def test_all_watchers_are_notified_of_each_condition() -> None:
    """Of each change of the condition."""
    heard: list[str] = []
    service, changes = built("ok"), Changes()
    service.watch(lambda: heard.append(service.get_condition().state))
    service.watch(changes)
    service.start()
    await changes.until(lambda: service.get_service().running)
    await service.stop()
    assert heard == ["starting", "running", "stopped"]


async def test_many_servers_answer_concurrent_calls() -> None:
    """Each with five calls: no answer is lost, and none goes astray."""
    services = [built("ok", start_timeout=60) for _ in range(8)]
    changes = Changes()
    for service in services:
        service.watch(changes)
        service.start()
    try:
        await changes.until(lambda: all(service.get_service().running for service in services), within_s=60)
        asked = [(service, f"{number}/{call}") for number, service in enumerate(services) for call in range(5)]
        answers = await asyncio.gather(*(called(service, "echo", text=text) for service, text in asked))
        assert answers == [(True, text) for _, text in asked]
    finally:
        await asyncio.gather(*(service.close() for service in services))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"command": None}, "expected either command or url"),
        ({"url": "http://a"}, "expected either command or url"),
        ({"timeout": "soon"}, "expected a duration"),
        ({"tiemout": 5}, "Extra inputs are not permitted"),
        ({"oauth": {"issuer": "https://i"}}, "client_id"),
    ],
)
def test_invalid_service_settings_are_refused(options: dict[str, Any], problem: str) -> None:
    """The error names the problem, without a value."""
    with pytest.raises(ValidationError, match=problem):
        built("ok", **options)


def test_config_accepts_every_server_key_without_secret_files() -> None:
    """Every key of a server, but those of files that hold secrets."""
    names = {name for name in McpServer.model_fields if not name.endswith("_file")}
    assert Config.model_fields.keys() == names | {"name"}


def test_service_repr_contains_no_secrets() -> None:
    """Settings that are logged by mistake show no credential."""
    config = Config.model_validate(
        {
            "url": "http://m/?key=canary",
            "headers": {"Authorization": "canary"},
            "oauth": {"issuer": "https://i", "client_id": "c", "client_secret": "canary"},
        }
    )
    service = PLUGIN.build(config, cast("Host", Desk()))
    assert "canary" not in repr(config) + repr(service) and repr(service) == "<McpService 'mcp'>"
    assert service.get_condition().transport == "http"


def test_service_module_does_not_import_the_sdk() -> None:
    """Its import costs seconds and tens of megabytes."""
    code = "import sys, gateway.mcp.service; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"mcp", "mcp_types", "httpx2", "anyio", "starlette"} & set(loaded)


def test_missing_sdk_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'twolane\[mcp\]'"):
        built("ok")
