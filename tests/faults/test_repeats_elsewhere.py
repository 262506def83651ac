"""A client that repeats its request without saying so, and gets to another worker than before."""

import asyncio
import json
import os
import signal
from pathlib import Path

from functional.through import post
from gateways import config, exchange, fetch, until

from gateway.testing.messages import Response
from gateway.testing.raw_connection import connect
from tests.e2e.models import Model, calls, refuses, says
from tests.support.gateway_process import GatewayProcess

GO = post(
    json.dumps({"model": "m", "messages": [{"role": "user", "content": "Go."}]}).encode(),
    b"/context/v1/chat/completions",
).replace(b"gw.example", b"localhost")
#: So often that each worker gets some.
OFTEN = 12


_MARK = """
import os

from pydantic import BaseModel

from gateway.plugin import Plugin, ToolResult, ToolSpec


class Config(BaseModel):
    file: str


class Mark:
    def __init__(self, file):
        self._file = file

    async def list_tools(self):
        return (ToolSpec(name="mark", description="x", parameters={"type": "object"}, category="text"),)

    async def refusal(self, call, exchange):
        return None

    async def call(self, call, exchange):
        with open(self._file, "a") as file:
            file.write(f"{os.getpid()}\\n")
        return ToolResult("marked")

    async def close(self):
        pass


PLUGIN = Plugin(Config, lambda config, host: Mark(config.file))
"""


def settings(folder: Path, model: Model) -> str:
    """Two workers with one tool, which writes its process id each time that it runs."""
    plugin = folder / "plugins/tools/mark.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(_MARK)
    return config(
        model.upstream.base_url,
        workers=2,
        store=f"sqlite:///{folder}/gateway.db",
        plugins={"folder": str(folder / "plugins")},
        tools={"mark": {"with": {"file": str(folder / "made")}}},
    )


def made(folder: Path) -> list[int]:
    """The processes in which the tool ran."""
    return [int(line) for line in (folder / "made").read_text().splitlines()]


async def asked(gateway: GatewayProcess) -> Response:
    """The answer to the request, on a connection of its own."""
    async with connect(gateway.host, gateway.port) as client:
        return await exchange(client, GO)


async def test_run_failed_after_an_effect_is_replayed_by_every_worker(tmp_path: Path) -> None:
    """The tool has run once, and the model is not asked again."""
    async with Model(calls("mark"), refuses(400)) as model:
        async with GatewayProcess(settings(tmp_path, model)) as gateway:
            answers = [await asked(gateway) for _ in range(OFTEN)]
        assert [answer.status for answer in answers] == [400] * OFTEN
        assert all(answer.list_values(b"x-should-retry") == [b"false"] for answer in answers)
        assert len(model.asked) == 2
    assert len(made(tmp_path)) == 1


async def test_repeated_request_joins_the_run_of_a_killed_worker(tmp_path: Path) -> None:
    """Its client repeats the request at once, and gets the answer of the run that another worker has taken up."""
    answers = (calls("mark"), says(asyncio.Event()), *[says("Done.")] * 2)
    async with Model(*answers) as model:
        async with GatewayProcess(settings(tmp_path, model)) as gateway:
            async with connect(gateway.host, gateway.port) as client:
                await client.send(GO)
                await until(lambda: len(model.asked) == 2)
                (worker,) = made(tmp_path)
                os.kill(worker, signal.SIGKILL)
                await client.wait_end()
            again = await asked(gateway)
            (run,) = json.loads((await fetch(gateway, b"/context/runs")).payload)["data"]
        assert again.status == 200, again.payload
        assert json.loads(again.payload)["choices"][0]["message"]["content"] == "Done."
        assert again.list_values(b"x-context-run-id") == [run["id"].encode()]
    assert len(made(tmp_path)) == 1
