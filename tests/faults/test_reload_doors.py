"""A reload opens nothing that was closed, whatever became of the file, in all workers or in none."""

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from functional.through import FINE, get, post
from gateways import all_workers, exchange, key, until, workers_of

from gateway.testing.ports import free_port
from gateway.testing.raw_connection import connect
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

KEY, PROVIDERS = "gw-key-of-a-client", "sk-key-of-the-provider"


def written(listen: str, upstream_url: str, *, workers: int = 1) -> str:
    """A gateway.yaml, in the order in which people write it, each guard on a line of its own."""
    entry = key(KEY)
    return f"""listen: {listen}
workers: {workers}
upstreams:
  - name: up
    base_url: {upstream_url}
    api_key: {PROVIDERS}
keys:
  - name: client
    sha256: {entry["sha256"]}
    scopes: [passthrough]
risk:
  trust_llm: never
  rules:
    execute_command: deny
passthrough:
  paths: [/v1/]
logging: {{level: info}}
"""


@asynccontextmanager
async def guarded(*, host: str = "0.0.0.0", workers: int = 1) -> AsyncIterator[tuple[GatewayProcess, FakeUpstream]]:
    port = free_port("127.0.0.1")
    async with FakeUpstream(FINE) as upstream:
        text = written(f"{host}:{port}", upstream.base_url, workers=workers)
        async with GatewayProcess(text, listens_by_config=True, port=port) as gateway:
            if workers > 1:
                await all_workers(gateway)
            yield gateway, upstream


async def reloaded(gateway: GatewayProcess, text: str) -> str:
    """What the gateway logs of a reload of this file, by the time that it is over."""
    before = len(gateway.read_stderr())
    gateway.folder.joinpath("gateway.yaml").write_text(text)
    gateway.signal(signal.SIGHUP)

    def told() -> bool:
        new = gateway.read_stderr()[before:]
        return "reload failed" in new or "configuration reloaded" in new

    await until(told)
    return gateway.read_stderr()[before:]


async def statuses(gateway: GatewayProcess, *lines: bytes, times: int = 1) -> set[int]:
    """The answers to requests on connections of their own, which workers share among them."""
    found = set()
    for _ in range(times):
        async with connect(gateway.host, gateway.port) as client:
            found.add((await exchange(client, get(b"/v1/x", *lines).replace(b"gw.example", b"localhost"))).status)
    return found


async def still_closed(gateway: GatewayProcess, upstream: FakeUpstream, *, times: int = 1) -> None:
    """Nobody without the key gets in, who has it does."""
    seen = len(upstream.requests)
    assert await statuses(gateway, times=times) == {401}
    assert await statuses(gateway, b"Authorization: Bearer wrong") == {401}
    assert len(upstream.requests) == seen
    async with connect(gateway.host, gateway.port) as client:
        register = post(json.dumps({"name": "x", "command": "/bin/true"}).encode(), b"/mcp/services")
        register = register.replace(b"gw.example", b"localhost")
        assert (await exchange(client, register)).status == 401
    assert await statuses(gateway, b"Authorization: Bearer %b" % KEY.encode()) == {200}


def cuts(text: str) -> dict[str, str]:
    """What a write of the file leaves that did not come to its end, and other ways to lose it."""
    lines = text.splitlines(keepends=True)
    ends = {f"line {count}": "".join(lines[:count]) for count in range(len(lines))}
    within = {f"within line {count}": "".join(lines[:count]) + lines[count][:-3] for count in range(len(lines))}
    others = {"blank": "\n \n", "null": "null\n", "comment": "# nothing\n", "begin": "---\n", "braces": "{}\n"}
    keys_null = text.replace(text[text.index("keys:") : text.index("risk:")], "keys:\n")
    keys_empty = keys_null.replace("keys:\n", "keys: []\n")
    loopback = keys_null.replace("listen: 0.0.0.0", "listen: 127.0.0.1")
    return {**ends, **within, **others, "keys null": keys_null, "keys []": keys_empty, "loopback now": loopback}


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_truncated_file_on_reload_keeps_the_old_configuration() -> None:
    """Cut behind every line and within every line, blank, null: the log says so, keys hold; a good file is used."""
    async with guarded() as (gateway, upstream):
        text = gateway.folder.joinpath("gateway.yaml").read_text()
        for name, left in cuts(text).items():
            log = await reloaded(gateway, left)
            assert "reload failed, the old configuration stays in use" in log and "reloaded" not in log, name
            assert KEY not in log and PROVIDERS not in log
        await still_closed(gateway, upstream)
        assert "configuration reloaded" in await reloaded(gateway, text.replace("level: info", "level: debug"))
        await still_closed(gateway, upstream)


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("line", ["  trust_llm: never\n", "  rules:\n    execute_command: deny\n", "  paths: [/v1/]\n"])
async def test_reload_that_silently_drops_a_guard_is_refused(line: str) -> None:
    """Another line of the file is gone, which had closed something: only where the default says the same, it may."""
    async with guarded(host="127.0.0.1") as (gateway, upstream):
        text = gateway.folder.joinpath("gateway.yaml").read_text()
        log = await reloaded(gateway, text.replace(line, ""))
        if "paths" in line:
            assert "configuration reloaded" in log
        else:
            assert "reload failed" in log and "risk." in log and "was set and is gone" in log
            said = text.replace("never", "always").replace("    execute_command: deny", "    execute_sql: deny")
            assert "configuration reloaded" in await reloaded(gateway, said)
        await still_closed(gateway, upstream)


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_all_workers_reload_or_none() -> None:
    """The file is read once, by the supervisor: no worker sees another state of it."""
    async with guarded(workers=2) as (gateway, upstream):
        text = gateway.folder.joinpath("gateway.yaml").read_text()
        for left in (text.splitlines(keepends=True)[0], "", text[: len(text) // 2]):
            log = await reloaded(gateway, left)
            assert "configuration reloaded" not in log
            await still_closed(gateway, upstream, times=10)
        other = key("another-key")
        changed = text.replace(str(key(KEY)["sha256"]), str(other["sha256"]))
        gateway.folder.joinpath("gateway.yaml").write_text(changed)
        before = gateway.read_stderr().count("configuration reloaded")
        gateway.signal(signal.SIGHUP)
        await until(lambda: gateway.read_stderr().count("configuration reloaded") == before + 2)
        assert await statuses(gateway, b"X-Gateway-Key: %b" % KEY.encode(), times=10) == {401}
        assert await statuses(gateway, b"X-Gateway-Key: another-key", times=10) == {200}


#: A tool that cannot be built by the first that tries.
UNLUCKY = """
from pathlib import Path

from pydantic import BaseModel

from gateway.plugin import Plugin


class Config(BaseModel):
    mark: Path


class Unlucky:
    async def list_tools(self): return []
    async def close(self): return None


def build(config, host):
    try:
        config.mark.touch(exist_ok=False)
    except FileExistsError:
        return Unlucky()
    raise ValueError("no luck")


PLUGIN = Plugin(Config, build)
"""


def unlucky(gateway: GatewayProcess, text: str, mark: str) -> str:
    """The configuration with another key, and a tool that one worker cannot build until `mark` is there."""
    tools = gateway.folder / "plugins" / "tools"
    tools.mkdir(mode=0o700, parents=True, exist_ok=True)
    tools.parent.chmod(0o700)
    tools.joinpath("unlucky.py").write_text(UNLUCKY)
    tools.joinpath("unlucky.py").chmod(0o600)
    changed = text.replace(str(key(KEY)["sha256"]), str(key("another-key")["sha256"]))
    return f"{changed}tools: {{unlucky: {{with: {{mark: {gateway.folder / mark}}}}}}}\n"


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_reload_that_one_worker_rejects_applies_to_none() -> None:
    """The log says so for each; one that is started again uses what the others do; the next reload is a new one."""
    async with guarded(workers=2) as (gateway, upstream):
        text = gateway.folder.joinpath("gateway.yaml").read_text()

        async def reload(changed: str, told: str) -> str:
            before = len(gateway.read_stderr())
            gateway.folder.joinpath("gateway.yaml").write_text(changed)
            gateway.signal(signal.SIGHUP)
            await until(lambda: gateway.read_stderr()[before:].count(told) == 2)
            return gateway.read_stderr()[before:]

        log = await reload(unlucky(gateway, text, "mark"), "reload failed, the old configuration stays in use")
        assert "no luck" in log and "not every worker could use it" in log and "configuration reloaded" not in log
        await still_closed(gateway, upstream, times=10)
        assert await statuses(gateway, b"X-Gateway-Key: another-key", times=10) == {401}
        victim = workers_of(gateway)[0]
        os.kill(victim.pid, signal.SIGKILL)
        await until(lambda: len(workers_of(gateway)) == 2 and victim not in workers_of(gateway))
        await still_closed(gateway, upstream, times=10)
        await reload(unlucky(gateway, text, "mark"), "configuration reloaded")
        assert await statuses(gateway, b"X-Gateway-Key: %b" % KEY.encode(), times=10) == {401}
        assert await statuses(gateway, b"X-Gateway-Key: another-key", times=10) == {200}
        os.kill(workers_of(gateway)[0].pid, signal.SIGKILL)
        assert await statuses(gateway, b"X-Gateway-Key: another-key", times=10) == {200}


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize(
    "text", ["listen: 0.0.0.0:{port}\n", "listen: 0.0.0.0:{port}\nkeys:\n", "listen: '[::]:{port}'\nkeys: []\n"]
)
async def test_gateway_open_to_the_network_without_keys_refuses_to_start(text: str) -> None:
    """What a restart finds of a file that was cut short."""
    with pytest.raises(RuntimeError, match="open to others and there are no keys"):
        async with GatewayProcess(text.format(port=free_port("127.0.0.1")), listens_by_config=True):
            pass
