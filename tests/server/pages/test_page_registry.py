"""Our own pages in a worker: some are there from its start, and all others are made for their first request."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from gateways import key, until

from gateway.testing.local_gateway import LocalGateway

#: Sent by those who have the key `boss`.
BOSS = {"X-Gateway-Key": "boss"}
#: Starts a gateway with the demo model, has it answer requests, and prints which modules of these it imported by then.
CODE = """
import asyncio, sys
import aiohttp
from gateway.testing.local_gateway import LocalGateway
LATE = ("gateway.api.responses", "gateway.api.admin", "gateway.api.openapi", "gateway.dialects.responses.dialect",
        "gateway.contracts.views", "gateway.mcp_server.endpoint", "gateway.console", "gateway.server.pages.api")
def late():
    return sorted({one for one in LATE for name in sys.modules if name == one or name.startswith(one + ".")})
async def main():
    config = {"upstreams": [], "store": "sqlite:///:memory:"}
    async with LocalGateway(config) as gateway, aiohttp.ClientSession(gateway.base_url) as session:
        for path in ("/health/ready", "/metrics", "/", "/v1/models", "/context/v1/models"):
            async with session.get(path) as response:
                assert response.status == 200, path
        for path in ("/v1/chat/completions", "/context/v1/chat/completions"):
            body = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}
            async with session.post(path, json=body) as response:
                assert response.status == 200, path
        print(late())
        async with session.post("/context/v1/responses", json={"model": "demo", "input": "Hi"}) as response:
            assert response.status == 200
        print("gateway.api.responses" in late())
asyncio.run(main())
"""


@asynccontextmanager
async def held_imports() -> AsyncIterator[threading.Event]:
    """Hold what runs in threads of the loop, as imports do, until the event is set, or the block ends."""
    imports = threading.Event()
    threads = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(threads)  # whose end is that of the loop
    threads.submit(imports.wait)
    try:
        yield imports
    finally:
        imports.set()


def test_unused_pages_are_not_imported() -> None:
    """Passthrough and chats go without them: a tenth of the memory of an idle gateway."""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, cwd=root, check=False)
    assert done.stdout == "[]\nTrue\n", done.stderr


async def test_concurrent_first_requests_are_all_answered() -> None:
    """By pages that are made once."""
    paths = ("/context/runs", "/context/approvals", "/context/keys", "/v1/system-prompts", "/mcp/services")
    config = {"upstreams": [], "keys": [key("boss", "context", "approve", "admin")]}
    async with (
        LocalGateway(config) as made,
        aiohttp.ClientSession(made.base_url, headers=BOSS) as session,
    ):

        async def status(path: str) -> int:
            async with session.get(path) as response:
                return response.status

        assert await asyncio.gather(*map(status, paths)) == [200] * len(paths)
        assert (await made.gateway._built.pages.list_other_routes()) is (
            await made.gateway._built.pages.list_other_routes()
        )


async def test_first_request_is_refused_with_the_usual_errors() -> None:
    """Without a key, for a page that is not there, by a method that a page does not have."""
    found = []
    for method, path, headers in (
        ("GET", "/context/runs", {}),
        ("GET", "/context/nothing", BOSS),
        ("DELETE", "/context/runs", BOSS),
    ):
        config = {"upstreams": [], "keys": [key("boss", "context")]}
        async with (
            LocalGateway(config) as made,
            aiohttp.ClientSession(made.base_url) as session,
            session.request(method, path, headers=headers) as response,
        ):
            found.append((response.status, json.loads(await response.read())["error"]["code"]))
    assert found == [(401, "missing_api_key"), (404, "unknown_route"), (405, "method_not_allowed")]


async def test_unauthorized_requests_do_not_build_the_lazy_pages() -> None:
    """Nor does a preflight: a scanner costs no memory."""
    config = {"upstreams": [], "keys": [key("boss", "context")]}
    preflight = {"Origin": "https://app.example.com", "Access-Control-Request-Method": "GET"}
    async with LocalGateway({**config, "cors": ["https://app.example.com"]}) as made:
        async with aiohttp.ClientSession(made.base_url) as session:
            async with session.get("/context/nothing") as response:
                assert response.status == 401
            for path in ("/context/runs", "/context/v1/responses"):
                async with session.get(path, headers={"X-Gateway-Key": "eve"}) as response:
                    assert response.status == 401
            async with session.options("/context/status", headers=preflight) as response:
                assert response.status == 204
        assert made.gateway._built.pages._later.part is None


async def test_stream_of_a_page_made_during_drain_ends() -> None:
    """Its request was the first one, and the gateway began to leave meanwhile."""
    config = {"upstreams": [], "limits": {"drain": "10m"}}
    body = {"model": "demo", "input": "slow 600", "background": True, "stream": True}
    async with LocalGateway(config) as made, aiohttp.ClientSession(made.base_url) as session, held_imports() as imports:
        first = asyncio.create_task(session.post("/context/v1/responses", json=body))
        await until(lambda: made.gateway._built.pages._later._making is not None)
        leaving = asyncio.create_task(made.gateway.drain())
        await until(lambda: made.gateway._built.pages._leaves)
        assert made.gateway._built.pages._later.part is None
        imports.set()
        await asyncio.wait_for(leaving, 120)
        async with await first as stream:
            assert stream.status == 200 and b"[DONE]" not in await asyncio.wait_for(stream.read(), 120)


async def test_drain_does_not_wait_for_pages_being_made() -> None:
    """Its end comes while they are made for a request whose client has left."""
    async with LocalGateway({"upstreams": []}) as made:
        making = asyncio.create_task(made.gateway._built.pages.list_other_routes())
        await until(lambda: made.gateway._built.pages._later._making is not None)
        await asyncio.wait_for(made.gateway.drain(), 120)
    assert making.cancelled() or making.done()
