"""Real model servers behind a gateway (`make test-servers`): clients get their answers, and the records are right."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from gateway.testing.ports import free_port

from .clients import CLIENTS, Asked, Client, events
from .rooms import ROOMS
from .serving import ANSWER, FOUND, LOOK, READ, Server, in_front, posted

pytestmark = pytest.mark.servers
_ROOT: Final = Path(__file__).parents[2]
_PYTHON: Final = _ROOT / ".venv-model-servers" / "bin" / "python"
_PROGRAM: Final = Path(__file__).parent / "programs" / "litserve_program.py"
_LITSERVE: Final = next(room for room in ROOMS if room.name == "litserve")


@asynccontextmanager
async def litserve(folder: Path) -> AsyncIterator[str]:
    """Run LitServe. Yield its base URL."""
    port = free_port()
    with (folder / "log").open("wb") as log:
        command = [str(_PYTHON), str(_PROGRAM), str(port)]
        program = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            while not await _is_up(session):
                assert program.poll() is None, (folder / "log").read_text()
                await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(program.pid, signal.SIGKILL)  # its workers with it
        program.wait()


async def _is_up(session: aiohttp.ClientSession) -> bool:
    try:
        async with session.get("/health") as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def test_clients_get_their_answers_from_litserve(tmp_path: Path) -> None:
    """Texts, calls of the client's tools, and results of the gateway's; streamed or not."""
    async with litserve(tmp_path) as url, in_front(Server(_LITSERVE, url), tmp_path) as session:
        client: Client
        for client, said, is_stream in product(CLIENTS, ("Where?", LOOK, READ), (False, True)):
            got = await posted(session, client, Asked([], said, has_tools=said == LOOK, is_stream=is_stream))
            assert not isinstance(got, str), got
            assert [json.loads(one) for one in got.arguments] == ([FOUND[0]] if said == LOOK else [])
            assert got.text == ("" if said == LOOK else ANSWER), (client.name, said, is_stream)


async def test_litserve_record_matches_the_real_server(tmp_path: Path) -> None:
    """A newer version may have other habits: then its record, and the page, must change."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Where?"}], "stream": True}
    async with (
        litserve(tmp_path) as url,
        aiohttp.ClientSession() as session,
        session.post(f"{url}/chat/completions", json=body) as response,
    ):
        raw = await response.text()
    told, style = events(raw), _LITSERVE.style
    assert (len({one["id"] for one in told}) == len(told)) == style.fresh_ids
    assert raw.rstrip().endswith("[DONE]") == style.done
    assert told[-1]["choices"][0]["finish_reason"] == "stop" and style.usage == "finish"
    assert (told[-1]["usage"]["prompt_tokens"], told[-1]["usage"]["completion_tokens"]) == style.tokens
    assert told[0]["choices"][0]["delta"].keys() == {"content", *style.delta}
