"""The console's way to the API: a server on a socket of this machine, and what it answers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from gateway.console.api_client import Api, ApiClient, ApiError


async def echo(request: web.Request) -> web.StreamResponse:
    if request.path == "/error":
        return web.json_response({"error": {"code": "gone", "message": "It is gone.", "param": "id"}}, status=409)
    if request.path == "/cut":
        assert request.transport is not None
        request.transport.close()
    if request.path == "/empty":
        return web.Response(status=204)
    facts = {"method": request.method, "path": request.raw_path, "headers": dict(request.headers)}
    return web.json_response({**facts, "body": (await request.read()).decode()})


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", echo)
    runner = web.AppRunner(application)
    await runner.setup()
    for name in ("data", "admin"):
        await web.UnixSite(runner, str(tmp_path / name)).start()
    client = ApiClient(str(tmp_path / "data"), admin=str(tmp_path / "admin"))
    try:
        yield client.build_api("lent-token")
    finally:
        await client.close()
        await runner.cleanup()


async def test_api_request_carries_the_lent_token_and_no_cookie(api: Api) -> None:
    found = await api.get("context", "runs", limit=5, after=None, state="a&b")
    assert (found["method"], found["path"]) == ("GET", "/context/runs?limit=5&state=a%26b")
    assert found["headers"]["X-Gateway-Key"] == "lent-token" and "Cookie" not in found["headers"]
    sent = await api.post("context", "x", body={"a": "é"}, Idempotency_Key="k")
    assert (sent["body"], sent["headers"]["Content-Type"]) == ('{"a":"é"}', "application/json")
    assert sent["headers"]["Idempotency-Key"] == "k"
    assert (await api.put("x", body={}))["method"] == "PUT"
    assert (await api.delete("empty")) == {}


@pytest.mark.parametrize("segment", ["a/b", "..%2f", "a?b=c", "a#b", "%", "é", "a\\b", "//evil.example", " "])
async def test_path_segment_with_reserved_characters_is_escaped(api: Api, segment: str) -> None:
    path = (await api.get("context", "runs", segment))["path"]
    assert path.startswith("/context/runs/") and path.count("/") == 3 and "?" not in path and "#" not in path


@pytest.mark.parametrize("segment", ["", ".", ".."])
async def test_empty_or_dot_path_segment_is_reported_as_unknown_route(api: Api, segment: str) -> None:
    with pytest.raises(ApiError) as refused:
        await api.get("context", "approvals", segment, "preview")
    assert (refused.value.status, refused.value.code) == (404, "unknown_route")


async def test_api_error_has_status_code_text_and_field(api: Api) -> None:
    with pytest.raises(ApiError, match="409 gone: It is gone") as refused:
        await api.get("error")
    error = refused.value
    assert (error.status, error.code, error.message, error.param) == (409, "gone", "It is gone.", "id")


async def test_unresponsive_api_raises_a_504_error(api: Api, tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="look whether anything has happened") as cut:
        await api.post("cut", body={})
    assert (cut.value.status, cut.value.code) == (504, "no_answer")
    missing = ApiClient(str(tmp_path / "missing"))
    with pytest.raises(ApiError) as refused:
        await missing.build_api("t").get("context", "summary")
    assert refused.value.status == 504
    await missing.close()
    await missing.close()


async def test_stream_post_returns_the_response_whatever_its_status(api: Api) -> None:
    async with api.stream_post("error", body={}) as response:
        assert response.status == 409
