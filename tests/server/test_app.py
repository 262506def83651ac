"""One worker's object graph: built, reloaded, drained, closed."""

import asyncio
import hashlib
import io
import json
import subprocess
import sys
import threading
from pathlib import Path

import aiohttp
import pytest
from functional.through import ask, client_of, get, through
from gateways import exchange, fetch, scrape, until

from gateway.config import ConfigError, LoadedConfig, Problem, Settings
from gateway.plugins.tools.execute_command import ExecuteCommand
from gateway.sandbox.launch_messages import Level
from gateway.server.app import ADMIN, DATA, Gateway
from gateway.telemetry.logs import LogSink
from gateway.telemetry.metrics import Metrics
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream
from tests.sandbox.machine import READ_ONLY_LEVELS


def loaded(upstream_url: str, **sections: object) -> LoadedConfig:
    content = {"upstreams": [{"name": "up", "base_url": upstream_url}], "store": "sqlite:///:memory:", **sections}
    settings = Settings.model_validate(content, context={"folder": Path.cwd()})
    return LoadedConfig(settings=settings, warnings=(), file=None, folder=Path.cwd())


async def test_reload_requested_during_a_reload_runs_afterwards() -> None:
    """The file may have changed after the first one read it: what it says last is used."""
    reading, go_on = threading.Event(), threading.Event()
    reads: list[str] = []

    def load() -> LoadedConfig:
        reads.append(newest[0])
        now = loaded(newest[0])
        reading.set()
        go_on.wait(30)
        return now

    metrics = Metrics()
    sink = LogSink(io.StringIO(), as_json=True, secrets=(), dropped=metrics.log_line_dropped)
    newest = ["http://127.0.0.1:1"]
    gateway = Gateway(loaded(newest[0]), load=load, sink=sink, metrics=metrics)
    await gateway.start()
    gateway.reload_soon()
    await until(reading.is_set)
    newest[0] = "http://127.0.0.1:2"
    gateway.reload_soon()
    gateway.reload_soon()
    go_on.set()
    await until(lambda: metrics.reloads["success"] == 2)
    assert reads == ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    await gateway.close()
    sink.close()


@pytest.mark.parametrize(
    "trouble", [ConfigError((Problem("gateway.yaml", "listen", "no"),)), OSError("disk"), MemoryError()]
)
async def test_failed_reload_keeps_the_old_configuration_and_counts_a_failure(trouble: Exception) -> None:
    """Whatever went wrong: the old configuration serves, and the next reload works."""

    def load() -> LoadedConfig:
        if troubles:
            raise troubles.pop()
        return loaded(upstream.base_url)

    troubles = [trouble]
    metrics, log = Metrics(), io.StringIO()
    sink = LogSink(log, as_json=True, secrets=(), dropped=metrics.log_line_dropped)
    async with FakeUpstream() as upstream:
        gateway = Gateway(loaded(upstream.base_url), load=load, sink=sink, metrics=metrics)
        await gateway.start()
        await gateway.reload()
        assert metrics.reloads == {"success": 0, "failure": 1}
        await gateway.reload()
        assert metrics.reloads == {"success": 1, "failure": 1}
        await gateway.close()
        await gateway.close()
    sink.close()


async def test_tool_that_cannot_close_does_not_revert_a_reload(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says that the new configuration is in use, and which tools could not be closed; the others are."""
    folder = tmp_path / "plugins" / "tools"
    folder.mkdir(parents=True)
    for name, ends in (("sticky", "raise RuntimeError('it sticks')"), ("exits", "raise SystemExit"), ("good", "pass")):
        (folder / f"{name}.py").write_text(STICKY.format(name=name, ends=ends))
    settings = {"plugins": {"folder": str(tmp_path / "plugins")}, "tools": {"sticky": {}, "exits": {}, "good": {}}}
    caplog.set_level("INFO", "gateway")
    async with LocalGateway(settings) as gateway:
        await gateway.reload({**settings, "limits": {"headers": 99}})
        assert gateway.metrics.reloads == {"success": 1, "failure": 0}
        said = [record.message for record in caplog.records]
    assert "configuration reloaded" in said and "stays in use" not in caplog.text
    assert said.count("tools of Sticky could not be closed") == 2 and "closed: good" in said


STICKY = """
import logging
from pydantic import BaseModel
from gateway.plugin import Plugin, ToolResult, ToolSpec

class Config(BaseModel):
    \"\"\"Nothing.\"\"\"

class Sticky:
    async def list_tools(self):
        return [ToolSpec(name="{name}", description="x", parameters={{"type": "object"}})]

    async def refusal(self, call, exchange):
        return None

    async def call(self, call, exchange):
        return ToolResult("x")

    async def close(self):
        logging.getLogger("gateway").info("closed: {name}")
        {ends}

PLUGIN = Plugin(Config, lambda config, host: Sticky())
"""


async def test_invalid_webhook_secret_refuses_a_reload(caplog: pytest.LogCaptureFixture) -> None:
    """Before anything changes: what the log says is so."""
    async with through() as (gateway, upstream):
        entry = {"name": "other", "base_url": upstream.base_url}
        notify = [{"webhook": "https://hooks.example/x", "secret": "whsec_!"}]
        await gateway.reload({"upstreams": [entry], "approvals": {"notify": notify}})
        assert "the old configuration stays in use" in caplog.text
        assert b'gateway_upstream_up{upstream="other"}' not in (await fetch(gateway, b"/metrics")).payload


async def test_listen_addresses_and_workers_do_not_change_on_reload() -> None:
    """`listen`, `admin.listen` and `workers` need a restart: until then their pages stay where they are."""
    async with through() as (gateway, upstream):
        entry = {"name": "up", "base_url": upstream.base_url}
        await gateway.reload({"upstreams": [entry], "admin": {"listen": "127.0.0.1:1"}, "workers": 7})
        for page in (b"/health/ready", b"/health/live", b"/metrics"):
            assert (await fetch(gateway, page)).status == 200


async def test_a_reload_changes_upstreams_keys_limits_and_names() -> None:
    """From the next request on, also of connections that were there before."""
    async with (
        FakeUpstream(serve(build_answer(200, b"first"))) as first,
        FakeUpstream(serve(build_answer(200, b"second"))) as second,
        LocalGateway(
            {"upstreams": [{"name": "one", "base_url": first.base_url}], "allowed_hosts": ["gw.example"]}
        ) as gateway,
        client_of(gateway) as client,
    ):
        assert (await exchange(client)).payload == b"first"
        assert (await fetch(gateway, b"/health/ready")).status == 200
        await gateway.reload(
            {
                "upstreams": [{"name": "two", "base_url": second.base_url}],
                "allowed_hosts": ["gateway.example", "gw.example"],
                "limits": {"head": "2KiB"},
                "logging": {"access": True},
            }
        )
        await first.wait_open(0)
        assert (await exchange(client)).payload == b"second"
        assert (await exchange(client, get(b"/v1/x", b"X: " + b"a" * 3000))).status == 431
        ready = get(b"/health/ready").replace(b"gw.example", b"gateway.example")
        assert (await ask(gateway, ready)).status == 200
        assert '"status":431' in gateway.get_log().replace(" ", "")
        counts = await scrape(gateway)
    upstreams = {name.partition('upstream="')[2].partition('"')[0] for name in counts if "upstream_up" in name}
    assert upstreams == {"two"}


async def test_close_ends_client_and_upstream_connections() -> None:
    """Clients see it, the upstream too."""
    async with through() as (gateway, upstream), client_of(gateway) as client:
        await exchange(client)
        await gateway.gateway.close()
        assert await client.wait_end() in ("eof", "reset")
        await upstream.wait_open(0)


async def test_drain_of_an_idle_gateway_finishes_at_once() -> None:
    """An idle gateway stops at once."""
    async with through(limits={"drain": "10m"}) as (gateway, _):
        await asyncio.wait_for(gateway.gateway.drain(), 120)


# Services.


async def names(base_url: str) -> list[str]:
    """The services that the pages tell of."""
    async with aiohttp.ClientSession() as session, session.get(f"{base_url}/mcp/services") as response:
        assert response.status == 200
        return [view["name"] for view in (await response.json())["data"]]


async def test_reload_updates_configured_services_and_keeps_registered_ones() -> None:
    """A reload takes effect at once; what was registered stays, and stands behind what is configured."""
    off = {"command": "off", "enabled": False}
    config = {"store": "sqlite:///:memory:", "mcp": {"servers": {"b": off, "a": off}}}
    async with LocalGateway(config) as gateway, aiohttp.ClientSession(gateway.base_url) as session:
        assert await names(gateway.base_url) == ["a", "b"]
        async with session.post("/mcp/services", json={"name": "mine", **off}) as response:
            assert response.status == 201
        await gateway.reload({**config, "mcp": {"servers": {"c": off, "mine": {"url": "http://x", "enabled": False}}}})
        assert await names(gateway.base_url) == ["c", "mine"]
        async with session.get("/mcp/services/mine") as response:
            assert (await response.json())["transport"] == "http"
        await gateway.reload({"store": "sqlite:///:memory:"})
        assert await names(gateway.base_url) == ["mine"]
        async with session.delete("/mcp/services/mine") as response:
            assert response.status == 200
        assert await names(gateway.base_url) == []


async def test_mcp_services_are_administered_on_the_admin_address_only() -> None:
    """With the keys of the configuration, as everywhere; the other address has no such page."""
    key = {"name": "root", "sha256": hashlib.sha256(b"secret-key").hexdigest(), "scopes": ["admin"]}
    settings = loaded("http://127.0.0.1:1", admin={"listen": "127.0.0.1:2"}, keys=[key], store="sqlite:///:memory:")
    metrics = Metrics()
    sink = LogSink(io.StringIO(), as_json=True, secrets=(), dropped=metrics.log_line_dropped)
    gateway = Gateway(settings, load=lambda: settings, sink=sink, metrics=metrics)
    await gateway.start()
    loop, found = asyncio.get_running_loop(), {}
    async with aiohttp.ClientSession() as session:
        for place in (DATA, ADMIN):
            server = await loop.create_server(gateway.get_connection_factory(place), "127.0.0.1", 0)
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp/services"
            for headers in ({}, {"X-Gateway-Key": "secret-key"}):
                async with session.get(url, headers=headers) as response:
                    found[place, bool(headers)] = response.status, json.loads(await response.read())
            server.close()
    await gateway.close()
    sink.close()
    assert found[ADMIN, True] == (200, {"object": "list", "data": [], "next": None}) and found[ADMIN, False][0] == 401
    assert {found[DATA, has_key][1]["error"]["code"] for has_key in (True, False)} == {"unknown_route"}


def test_gateway_without_services_does_not_import_the_mcp_sdk() -> None:
    """Neither the SDK, which costs seconds, nor what stands around it."""
    code = """
import asyncio, sys
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import connect
async def main():
    async with LocalGateway({"store": "sqlite:///:memory:"}) as gateway, connect("127.0.0.1", gateway.port) as client:
        await client.send(b"GET /health/ready HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
        assert (await client.read_response()).status == 200
asyncio.run(main())
needed = ("mcp", "gateway.mcp.service", "gateway.mcp.server_supervisor", "gateway.mcp.transport")
print([name for name in sys.modules if name.startswith(tuple(f"{one}." for one in needed)) or name in needed])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent.parent.parent
    )
    assert done.stdout == "[]\n", done.stderr


async def test_unavailable_confinement_is_logged_at_start_and_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And after a reload: nobody finds out by calls that are refused."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "work").mkdir()
    now = loaded("http://127.0.0.1:1", tools={"execute_command": {"sandbox": "bubblewrap"}})
    metrics = Metrics()
    sink = LogSink(io.StringIO(), as_json=True, secrets=(), dropped=metrics.log_line_dropped)
    gateway = Gateway(now, load=lambda: now, sink=sink, metrics=metrics)

    def warnings() -> list[str]:
        return [text for text in caplog.messages if "cannot confine commands" in text]

    await gateway.start()
    await until(lambda: len(warnings()) == 1)
    gateway.reload_soon()
    await until(lambda: len(warnings()) == 2)
    await gateway.close()
    sink.close()


async def test_command_confinement_is_tried_before_the_gateway_is_ready(tmp_path: Path) -> None:
    """And after a reload: the first one that nobody is asked about has no trial to wait for."""
    now = loaded("http://127.0.0.1:1", tools={"execute_command": {"sandbox": "none", "cwd": str(tmp_path)}})
    metrics = Metrics()
    sink = LogSink(io.StringIO(), as_json=True, secrets=(), dropped=metrics.log_line_dropped)
    gateway = Gateway(now, load=lambda: now, sink=sink, metrics=metrics)

    def tried() -> Level | None:
        sources = gateway._context.explainer.judge.catalog.sources
        return next(source.read_only_sandbox for source in sources if isinstance(source, ExecuteCommand))

    await gateway.start()
    assert tried() == READ_ONLY_LEVELS[0]
    await gateway.reload()
    assert tried() == READ_ONLY_LEVELS[0]
    await gateway.close()
    sink.close()
