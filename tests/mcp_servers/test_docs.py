"""docs/mcp.md is true: what stands there runs as it stands there, and prints what stands there."""

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from gateways import until_read

from tests.clients.snippets import ADDRESS, Snippet, run, save, snippets_of
from tests.mcp_servers.servers import time_server
from tests.support.gateway_process import GatewayProcess

pytestmark = pytest.mark.mcp_servers

SNIPPETS: Final = tuple(snippets_of("docs/mcp.md"))
#: Days, and the hashes of definitions, which another version of the server may have changed.
_CHANGING: Final = re.compile(r"\d{4}-\d\d-\d\d|\w+day|\b[0-9a-f]{64}\b")


#: Run by tests/e2e/test_mcp_environment.py, which needs no server of others.
_ELSEWHERE: Final = {"mcp proxy"}


def named(name: str) -> list[Snippet]:
    """Returns the snippets of that name, in the order of the page."""
    return [snippet for snippet in SNIPPETS if snippet.name == name]


async def prints(snippet: Snippet, *, home: Path, address: str = ADDRESS) -> None:
    """Check the output of the page's example, run in a folder of its own; only the port is another one."""
    program = home / "gateway"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gateway "$@"\n', encoding="utf-8")
    program.chmod(0o700)
    found = os.pathsep.join((str(home), str(Path(sys.executable).parent), os.environ["PATH"]))
    env = {"PATH": found, "GATEWAY__LISTEN": address}
    printed = await asyncio.to_thread(run, snippet, home=home, address=address, env=env)
    assert _CHANGING.sub("...", printed.replace(address, ADDRESS)) == _CHANGING.sub("...", snippet.output)


async def until_running(gateway: GatewayProcess, name: str) -> None:
    async def state() -> object:
        async with client.get(f"{gateway.base_url}/mcp/services/{name}") as answer:
            return (await answer.json())["state"]

    async with aiohttp.ClientSession() as client:
        await until_read(state, lambda found: found == "running")


def test_every_snippet_is_run() -> None:
    """And the page has no other ones."""
    assert {snippet.name for snippet in SNIPPETS} - _ELSEWHERE == {"mcp", "mcp list", "mcp call", "mcp http", "mcp add"}


async def test_mcp_quick_start_prints_the_documented_output(tmp_path: Path) -> None:
    """The pasted block, the list, a call, and a service that is registered beside it."""
    [saved] = named("mcp")
    found = os.pathsep.join((str(Path(time_server().command).parent), str(Path(sys.executable).parent)))
    async with GatewayProcess(saved.code, env={"PATH": f"{found}{os.pathsep}{os.environ['PATH']}"}) as gateway:
        address = gateway.base_url.removeprefix("http://")
        await until_running(gateway, "time")
        for name in ("mcp list", "mcp call", "mcp add"):
            [snippet] = named(name)
            await prints(snippet, home=tmp_path, address=address)


async def test_http_servers_snippet_prints_the_documented_output(tmp_path: Path) -> None:
    """Their configuration is one, with the variables that it names."""
    saved, snippet = named("mcp http")
    save(saved, home=tmp_path, address=ADDRESS)
    await prints(snippet, home=tmp_path)
