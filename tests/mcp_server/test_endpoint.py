"""The endpoint over HTTP: who may come in, what is refused, sessions, and many clients at once."""

import asyncio
import json
from typing import Any, Final

import aiohttp
import pytest
from gateways import samples, until, until_read
from mcp.client import Client

from gateway.testing.local_gateway import LocalGateway
from tests.mcp_server.serving import ACCEPT, INITIALIZE, OLDER, Era, World, both_eras, keys, server, texts, world
from tests.support.gateway_process import GatewayProcess

#: Fields and the `_meta` of a call of the newer era.
NEWER: Final = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "here__echo"}
META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "probe", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def _call(made: World, fields: dict[str, str], request_id: int | str, text: str) -> tuple[int, Any]:
    params = {"name": "here__echo", "arguments": {"text": text}, "_meta": META}
    body = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
    return await made.post("/mcp", body, **{**ACCEPT, **fields})


async def test_endpoint_is_absent_without_its_configuration_section() -> None:
    """The path is the upstream's, as any other."""
    async with LocalGateway({"upstreams": [{"name": "up", "base_url": "http://127.0.0.1:9/v1"}]}) as gateway:
        status, body = await World(gateway, {}).post("/mcp", INITIALIZE, **ACCEPT)
        assert (status, body["error"]["code"]) == (404, "unknown_route")


async def test_endpoint_accepts_only_keys_with_the_tools_scope() -> None:
    """Others are refused before anything is read, with the way in for those without a key."""
    async with world(keys=keys(agent=["tools"], chat=["context"])) as made:
        assert (await made.post("/mcp", INITIALIZE, key="agent", **ACCEPT))[0] == 200
        for key, status, code in (
            (None, 401, "missing_api_key"),
            ("nobody", 401, "invalid_api_key"),
            ("chat", 403, "scope_missing"),
        ):
            answered = await made.post("/mcp", INITIALIZE, key=key, **ACCEPT)
            assert (answered[0], answered[1]["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"X-Gateway-Tool": "http_request"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
async def test_gateway_request_checks_apply_to_the_mcp_endpoint(fields: dict[str, str], status: int) -> None:
    """Pages of other sites, other names, and the gateway's own tools do not reach it."""
    async with world() as made:
        assert (await made.post("/mcp", INITIALIZE, **{**ACCEPT, **fields}))[0] == status


async def test_oversized_request_is_refused() -> None:
    """In bytes and in values."""
    async with world(limits={"context_body": "100KiB", "context_values": 1000}) as made:
        for value in ("x" * (200 << 10), [0] * 5000):
            status, body = await made.post("/mcp", {**INITIALIZE, "more": value}, **ACCEPT)
            assert (status, body["error"]["code"]) == (413, "request_too_large")


async def test_sessions_are_bound_to_their_key_and_limited() -> None:
    """Another key's request looks as if there were none; one too many gets 503."""
    async with world({"sessions": {"most": 1}}, keys=keys(agent=["tools"], second=["tools"])) as made:
        async with made.client("legacy", key="agent") as client:
            assert (await client.list_tools()).tools
            status, body = await made.post("/mcp", INITIALIZE, key="second", **ACCEPT)
            assert (status, body["error"]["message"]) == (503, "Too many open sessions")
        async with made.client("legacy", key="second") as client:  # the first one has ended
            assert (await client.list_tools()).tools


async def test_resumed_stream_ignores_last_event_id() -> None:
    """There are no events to send again, whatever the client names as its last one."""
    async with world() as made:
        fields = await made.session() | {"Last-Event-ID": "anything/7"}
        session = aiohttp.ClientSession(made.gateway.base_url)
        async with session, session.get("/mcp", headers={**fields, "Accept": "text/event-stream"}) as stream:
            assert (stream.status, stream.content_type) == (200, "text/event-stream")


@both_eras
async def test_trailing_slash_in_the_endpoint_url_is_accepted(calm: dict[str, object], era: Era) -> None:
    """Base URLs often end with one."""
    async with world(**calm) as made:
        for path, name in (("/", "here__echo"), ("/here/", "echo")):
            async with made.client(era, path=path) as client:
                assert texts(await client.call_tool(name, {"text": "hi"})) == "hi"


async def test_unknown_service_path_is_answered_with_service_not_found() -> None:
    """A mistake in the URL is told, and is no server without tools; one that does not run has its endpoint."""
    servers = {"here": server(), "off": {"command": "none", "enabled": False}}
    async with world(mcp={"servers": servers, "serve": {}}) as made:
        for path in ("/mcp/nope", "/mcp/nope/", "/mcp/Here"):
            status, answer = await made.post(path, INITIALIZE, **ACCEPT)
            assert (status, answer["error"]["data"]["code"]) == (404, "service_not_found")
        assert (await made.post("/mcp/off", INITIALIZE, **ACCEPT))[0] == 200
        async with aiohttp.ClientSession() as http, http.delete(f"{made.url}/services") as response:
            assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD, POST")


async def test_unsupported_protocol_version_is_refused_with_supported_versions() -> None:
    """With those that are; the first message of the older era agrees on one by its body."""
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    async with world() as made:
        for version in ("2099-01-01", "nonsense", ""):
            fields = {**ACCEPT, "MCP-Protocol-Version": version}
            status, answer = await made.post("/mcp", listing, **fields)
            assert (status, answer["id"], answer["error"]["code"]) == (400, 2, -32022)
            assert f"Unsupported protocol version {version!r}" in answer["error"]["message"]
            assert answer["error"]["data"]["supported"] == ["2026-07-28"]
            status, answer = await made.post("/mcp", INITIALIZE, **fields)
            assert status == 200 and f'"protocolVersion":"{OLDER}"' in answer


@pytest.mark.parametrize("again", [7, "7"])
async def test_request_id_in_use_in_a_session_is_refused(again: int | str) -> None:
    """Nothing runs for it, the first call gets its answer, and the id is free afterwards and in other sessions."""
    async with world() as made:
        first, other = await made.session(), await made.session()
        held = asyncio.create_task(_call(made, first, 7, "first"))
        await until_read(made.approvals, lambda found: len(found) == 1)
        status, answer = await _call(made, first, again, "second")
        assert (status, answer["id"], answer["error"]["code"]) == (400, None, -32600)
        assert f"the id {again!r} is under way" in answer["error"]["message"]
        assert len(await made.approvals()) == 1
        await made.decide("approve")
        assert "first" in json.dumps((await held)[1])
        for session, text in ((first, "third"), (other, "fourth")):
            free = asyncio.create_task(_call(made, session, again, text))
            await made.decide("approve")
            assert text in json.dumps((await free)[1])


@pytest.mark.parametrize("end", ["decided", "cancelled", "session deleted"])
async def test_request_id_stays_in_use_until_its_call_ends(end: str) -> None:
    """Although its client left: a call with the same id would get the result of the first one."""
    async with world(logging={"access": True}) as made:
        session = await made.session()
        left = asyncio.create_task(_call(made, session, 7, "first"))
        await until_read(made.approvals)
        left.cancel()
        await until(lambda: '"here.echo"' in made.gateway.get_log())  # its request is over
        status, answer = await _call(made, session, 7, "second")
        assert (status, answer["error"]["data"]["param"]) == (400, "id")
        if end == "decided":
            await made.decide("approve")
        elif end == "cancelled":
            withdrawn = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
            assert (await made.post("/mcp", withdrawn, **session))[0] == 202
            await until_read(made.approvals, lambda found: not found)
        else:
            async with aiohttp.ClientSession() as http, http.delete(made.url, headers=session) as response:
                assert response.status == 200
            assert (await _call(made, session, 7, "third"))[0] == 404
            await made.decide("approve")
            session = await made.session()
        free = asyncio.create_task(until_read(lambda: _call(made, session, 7, "third"), lambda got: got[0] == 200))
        await made.decide("approve")
        assert "third" in json.dumps((await free)[1])


async def test_modern_requests_may_share_an_id() -> None:
    """Each has its own stream, whatever session its client names."""
    async with world() as made:
        first = await made.session()
        held = [asyncio.create_task(_call(made, {**first, **NEWER}, 7, text)) for text in ("first", "second")]
        await until_read(made.approvals, lambda found: len(found) == 2)
        for pending in await made.approvals():
            await made.post(f"/context/approvals/{pending['id']}", {"decision": "approve"})
        assert [status for status, _ in await asyncio.gather(*held)] == [200, 200]


async def test_request_appears_in_metrics_and_access_log(calm: dict[str, object]) -> None:
    """With its tool and its run."""
    async with world(**calm, logging={"access": True}, metrics={"public": True}) as made, made.client() as client:
        await client.call_tool("here__echo", {"text": "hi"})
        lines = [json.loads(line) for line in made.gateway.get_log().splitlines()]
        (line,) = [line for line in lines if line.get("tool") == "here.echo"]
        assert (line["route"], line["mcp_method"], line["key"]) == ("mcp", "tools/call", "local")
        assert line["run"].startswith("run_")
        found = samples(await made.gateway.gateway._process.exposition.build_page())
        name = "gateway_mcp_server_operation_duration_seconds_count"
        assert found[name + '{error_type="",mcp_method_name="tools/call"}'] == 1


async def test_client_name_is_stored_with_the_run(calm: dict[str, object]) -> None:
    """With its run."""
    async with world(**calm) as made, made.client("legacy") as client:
        result = await client.call_tool("here__echo", {"text": "hi"})
        assert result.meta is not None
        run = await made.gateway.gateway._shared.store.run(result.meta["twolane/run"], tenant="local")
        assert run is not None and run.client is not None and (run.kind, run.tool) == ("tool", "here.echo")
        assert json.loads(run.client)["name"] == "mcp" and json.loads(run.client)["protocol"] == "2025-11-25"


async def test_concurrent_clients_get_their_own_results(calm: dict[str, object]) -> None:
    """20 clients of both eras, 10 calls each, all at once."""
    async with world(**calm) as made:

        async def client(number: int) -> None:
            async with made.client(("legacy", "auto")[number % 2]) as opened:
                calls = [opened.call_tool("here__echo", {"text": f"{number}.{i}"}) for i in range(10)]
                assert [texts(result) for result in await asyncio.gather(*calls)] == [
                    f"{number}.{i}" for i in range(10)
                ]

        await asyncio.gather(*map(client, range(20)))


@both_eras
async def test_every_worker_serves_requests(era: Era) -> None:
    """In sessions of the older era that another worker has, too."""
    config = json.dumps({"workers": 2, "mcp": {"servers": {}, "serve": {}}, "tools": {"demo_note": {}}})
    async with GatewayProcess(config) as gateway:
        for _ in range(4):  # each on connections of its own
            async with Client(f"{gateway.base_url}/mcp", mode=era) as client:
                found = await asyncio.gather(*(client.session.list_tools() for _ in range(8)))
                assert all("demo_note" in {tool.name for tool in one.tools} for one in found)


async def test_multiple_workers_without_a_common_store_refuse_session_streams() -> None:
    """A client of the older era neither waits on a stream that brings nothing, nor is promised news; its calls work."""
    served = {"mcp": {"servers": {}, "serve": {"wait": "0.1s"}}, "tools": {"demo_note": {}}}
    config = json.dumps({"workers": 2, "store": "sqlite:///:memory:", **served})
    note = {"name": "demo_note", "arguments": {"text": "hi"}}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": note}
    async with GatewayProcess(config) as gateway, aiohttp.ClientSession(gateway.base_url, headers=ACCEPT) as http:
        async with http.post("/mcp", json=INITIALIZE) as response:
            answer = await response.text()
            assert "Mcp-Session-Id" not in response.headers and '"protocolVersion":"2025-11-25"' in answer
            assert 'listChanged":true' not in answer
        for session in ({}, {"Mcp-Session-Id": "of another time"}):
            fields = {"MCP-Protocol-Version": "2025-11-25", **session}
            for method in ("GET", "DELETE"):
                async with http.request(method, "/mcp", headers=fields) as response:
                    refused = await response.json()
                    assert (response.status, response.headers["Allow"]) == (405, "POST")
                    assert "There are no sessions here" in refused["error"]["message"]
            async with http.post("/mcp", json=call, headers=fields) as response:
                assert "has NOT run" in await response.text()
