"""The looks of a worker at what others changed."""

import sqlite3
from pathlib import Path

import aiohttp
import pytest
from agent.doubles import Clock
from gateways import until, until_read

from gateway.plugins.stores.sqlite import SqliteStore
from gateway.server import periodic_checks
from gateway.testing.clock import ManualClock
from gateway.testing.local_gateway import LocalGateway

CLOCK = Clock(ManualClock())


async def test_failing_store_is_logged_and_read_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Changes of another worker are read then."""
    monkeypatch.setattr(periodic_checks, "LOOK_S", 0.005)
    monkeypatch.setattr(periodic_checks, "STORE_PAUSE_S", 0.005)
    file = tmp_path / "gateway.db"
    config = {"upstreams": [], "workers": 2, "store": f"sqlite:///{file}"}
    async with LocalGateway(config) as made, aiohttp.ClientSession(made.base_url) as session:

        async def text() -> object:
            async with session.get("/v1/system-prompts/greeter") as response:
                return (await response.json()).get("text")

        assert await text() is None
        other = SqliteStore(file)
        await other.open()
        rename(file, "counters", "gone")
        await until(lambda: "failed: no such table: counters" in caplog.text)
        rename(file, "gone", "counters")
        await other.put_prompt("greeter", "You greet.", tenant="local", now_s=CLOCK.time())
        assert await until_read(text) == "You greet."
        await other.close()


def rename(file: Path, name: str, new_name: str) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(f"ALTER TABLE {name} RENAME TO {new_name}")
    connection.close()
