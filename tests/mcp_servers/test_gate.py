"""Real servers behind the same gate as all tools: people decide, all is on record, and every worker knows them."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from gateways import all_workers, config, until_read

from tests.e2e.models import Answer, Json, says
from tests.e2e.serving import SERVICES, serving
from tests.e2e.talking import CHAT
from tests.mcp_servers.servers import Program
from tests.support.gateway_process import GatewayProcess

pytestmark = pytest.mark.mcp_servers

WORKERS = 2


def writes(file: Path, **risk: str) -> Answer:
    """The model's call; without a `risk_level` nobody says that it is harmless."""
    arguments = {"path": str(file), "content": "Two lanes.", **risk}
    return says(json.dumps({"tool_call": {"name": "files.write_file", "arguments": arguments}}))


@pytest.mark.parametrize("risk", [{}, {"risk_level": "high"}])
async def test_approved_write_runs_once_and_is_audited(
    filesystem_server: Program, notes: Path, risk: dict[str, str]
) -> None:
    """A person is asked, sees what is to be written, and then it is, once; audit and run tell all of it."""
    file = notes / "new.txt"
    async with serving(writes(file, **risk), servers={"files": filesystem_server.entry}) as world:
        first = await world.chat("use files.write_file")
        (approval,) = first.asks
        assert (approval["tool"], approval["arguments"]["content"]) == ("files.write_file", "Two lanes.")
        assert approval["basis"] == ("llm" if risk else "default")
        assert "Two lanes." in first.text and not file.exists()
        world.model.then(says("It is written."))
        said = [{"role": "user", "content": "use files.write_file"}, first.message]
        second = await world.chat([*said, {"role": "user", "content": f"approve {approval['id']}"}])
        assert (second.text, file.read_text()) == ("It is written.", "Two lanes.")
        run = await world.run(approval["run_id"], state="completed")
        (step,) = run["steps"]
        assert (step["tool"], step["state"]) == ("files.write_file", "finished")
        assert "Successfully wrote" in json.dumps(step)
        lines = (await world.get("/context/audit?limit=50")).json["data"]
        assert [line["event"] for line in lines] == ["verdict", "decision", "started", "finished"]
        assert {(line["tool"], line["run_id"]) for line in lines} == {("files.write_file", approval["run_id"])}


async def test_rejected_write_does_not_run(filesystem_server: Program, notes: Path) -> None:
    """Nothing runs."""
    file = notes / "new.txt"
    async with serving(writes(file), servers={"files": filesystem_server.entry}) as world:
        (approval,) = (await world.chat("use files.write_file")).asks
        await world.decide(approval["id"], "reject")
        run = await world.run(approval["run_id"], state="rejected")
        assert [step["state"] for step in run["steps"]] == ["rejected"] and not file.exists()


async def test_hints_of_a_server_lower_no_risk(filesystem_server: Program, notes: Path) -> None:
    """`readOnlyHint` is what a stranger says of itself; a word of the operator counts, whatever the model says."""
    asked = {"name": "files.read_text_file", "arguments": {"path": str(notes / "note.txt")}}
    files = filesystem_server.entry
    async with serving(says(json.dumps({"tool_call": asked})), servers={"files": files}) as world:
        assert (await world.chat("use files.read_text_file")).asks[0]["basis"] == "default"
    low = writes(notes / "new.txt", risk_level="low")
    async with serving(low, servers={"files": files | {"requires_approval": True}}) as world:
        assert (await world.chat("use files.write_file")).asks[0]["rule"] == "requires_approval"
    async with serving(low, servers={"files": files}, risk={"rules": {"files.*": "floor"}}) as world:
        assert (await world.chat("use files.write_file")).asks[0]["basis"] == "default"


# Several workers.


@asynccontextmanager
async def two_workers(folder: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a gateway of two workers; each request is a connection of its own, so either may answer."""
    text = config(None, workers=WORKERS, store=f"sqlite:///{folder / 'gateway.db'}")
    async with GatewayProcess(text) as gateway:
        await all_workers(gateway)
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(gateway.base_url, connector=connector) as session:
            yield session


async def page(session: aiohttp.ClientSession, method: str, path: str, content: Json | None = None) -> Json:
    async with session.request(method, f"{SERVICES}{path}", json=content) as response:
        found: Json = await response.json()
        return found


async def agreed(session: aiohttp.ClientSession, name: str, state: str) -> set[str]:
    """The workers, as each of them sees the other one; returns once all say that the service is in this state."""
    seen: set[str] = set()

    async def look() -> set[str]:
        view = await page(session, "GET", f"/{name}")
        others = view.get("workers", ())
        if view.get("state") == state and [other["state"] for other in others] == [state]:
            seen.add(others[0]["worker"])
        return seen

    return await until_read(look, lambda found: len(found) >= WORKERS)


async def answers(session: aiohttp.ClientSession, words: str, *, times: int = 20) -> Sequence[str]:
    async def one() -> str:
        body = {"model": "demo", "messages": [{"role": "user", "content": words}]}
        async with session.post(CHAT, json=body) as response:
            text: str = (await response.json())["choices"][0]["message"]["content"]
            return text

    return [await one() for _ in range(times)]


async def test_service_registered_at_one_worker_is_known_to_all(time_server: Program, tmp_path: Path) -> None:
    """Each has a process of its own; what is stopped, started or deleted at one is so at the other."""
    noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo", "risk_level": "low"}
    words = f"tool time.convert_time {json.dumps(noon)}"
    async with two_workers(tmp_path) as session:
        registered = await page(session, "POST", "", {"name": "time", **time_server.entry})
        assert registered["name"] == "time"
        assert len(await agreed(session, "time", "running")) == WORKERS
        assert all("T21:00:00+09:00" in text for text in await answers(session, words))
        await page(session, "POST", "/time/stop")
        await agreed(session, "time", "stopped")
        assert all("is not running just now" in text for text in await answers(session, words))
        await page(session, "POST", "/time/start")
        await agreed(session, "time", "running")
        assert all("T21:00:00+09:00" in text for text in await answers(session, words))
        await page(session, "DELETE", "/time")

        async def left() -> bool:
            return any([(await page(session, "GET", ""))["data"] for _ in range(10)])

        await until_read(left, lambda found: not found)
        assert all("there is no tool 'time.convert_time'" in text for text in await answers(session, words, times=5))
