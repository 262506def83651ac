"""One worker's object graph: built, reloaded, drained, closed."""

import asyncio
import io
import threading
from pathlib import Path

import pytest
from functional.through import ask, client_of, get, through
from running import exchange, fetch, scrape, until

from gateway.app import Gateway
from gateway.config import ConfigError, Loaded, Problem, Settings
from gateway.logs import LogSink
from gateway.metrics import Metrics
from gateway.testing.local import LocalGateway
from gateway.testing.scripts import answer, serve
from gateway.testing.upstream import FakeUpstream


def loaded(upstream_url: str, **sections: object) -> Loaded:
    content = {"upstreams": [{"name": "up", "base_url": upstream_url}], **sections}
    settings = Settings.model_validate(content, context={"folder": Path.cwd()})
    return Loaded(settings=settings, warnings=(), file=None, folder=Path.cwd())


async def test_a_reload_asked_for_during_a_reload_is_not_lost() -> None:
    """The file may have changed after the first one read it: what it says last is used."""
    reading, go_on = threading.Event(), threading.Event()
    reads: list[str] = []

    def load() -> Loaded:
        reads.append(newest[0])
        now = loaded(newest[0])
        reading.set()
        go_on.wait(5)
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
async def test_a_reload_that_fails_changes_nothing_but_a_count(trouble: Exception) -> None:
    """Whatever went wrong: the old configuration serves, and the next reload works."""

    def load() -> Loaded:
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


async def test_addresses_stay_as_they_were_at_the_start() -> None:
    """`listen`, `admin.listen` and `workers` need a restart: until then their pages stay where they are."""
    async with through() as (gateway, upstream):
        entry = {"name": "up", "base_url": upstream.base_url}
        await gateway.reload({"upstreams": [entry], "admin": {"listen": "127.0.0.1:1"}, "workers": 7})
        for page in (b"/health/ready", b"/health/live", b"/metrics"):
            assert (await fetch(gateway, page)).status == 200


async def test_a_reload_changes_upstreams_keys_limits_and_names() -> None:
    """From the next request on, also of connections that were there before."""
    async with (
        FakeUpstream(serve(answer(200, b"first"))) as first,
        FakeUpstream(serve(answer(200, b"second"))) as second,
        LocalGateway({"upstreams": [{"name": "one", "base_url": first.base_url}]}) as gateway,
        client_of(gateway) as client,
    ):
        assert (await exchange(client)).payload == b"first"
        assert (await fetch(gateway, b"/health/ready")).status == 200
        await gateway.reload(
            {
                "upstreams": [{"name": "two", "base_url": second.base_url}],
                "allowed_hosts": ["gateway.example"],
                "limits": {"head": "2KiB"},
                "logging": {"access": True},
            }
        )
        await first.wait_open(0)
        assert (await exchange(client)).payload == b"second"
        assert (await exchange(client, get(b"/v1/x", b"X: " + b"a" * 3000))).status == 431
        ready = get(b"/health/ready").replace(b"gw.example", b"gateway.example")
        assert (await ask(gateway, ready)).status == 200
        assert '"status":431' in gateway.logged().replace(" ", "")
        counts = await scrape(gateway)
    upstreams = {name.partition('upstream="')[2].partition('"')[0] for name in counts if "upstream_up" in name}
    assert upstreams == {"two"}


async def test_closing_ends_what_is_open() -> None:
    """Clients see it, the upstream too."""
    async with through() as (gateway, upstream), client_of(gateway) as client:
        await exchange(client)
        await gateway.gateway.close()
        assert await client.wait_end() in ("eof", "reset")
        await upstream.wait_open(0)


async def test_draining_with_nobody_there_takes_no_time() -> None:
    """An idle gateway stops at once."""
    async with through() as (gateway, _):
        await asyncio.wait_for(gateway.gateway.drain(), 0.5)
