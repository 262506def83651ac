"""The pages themselves: what they say, and to whom."""

import json
from typing import Any

import pytest
from aiohttp import web
from gateways import key

from gateway.api.ops_pages import Readiness, Site
from gateway.auth.host_guard import HostGuard
from gateway.contracts.errors import GatewayError
from gateway.lanes.auth_failures import WrongKeys
from gateway.testing.clock import ManualClock
from tests.e2e.models import says
from tests.e2e.talking import talking
from tests.lanes.assembled import Lane, assembled

PATHS = (b"/", b"/health/live", b"/health/ready", b"/metrics", b"/gone")


def allowed(_request: web.Request) -> None:
    """Everybody comes in."""


def guarded(*, ready: Readiness = "ready", exposition: Any = None, further: Any = ()) -> web.Application:
    async def told() -> Readiness:
        return ready

    return Site(
        exposition=exposition,
        ready=told,
        door=HostGuard,
        recognise=allowed,
        read_metrics=allowed,
        wrong_keys=WrongKeys(clock=ManualClock()),
        further=further,
    ).build_application()


def pages(*, ready: Readiness = "ready", exposition: bytes | None = b"metric 1\n") -> web.Application:
    async def page(openmetrics: bool) -> bytes:
        assert exposition is not None
        return b"# EOF\n" if openmetrics else exposition

    return guarded(exposition=page if exposition is not None else None, ready=ready)


async def asked(lane: Lane, path: str, *lines: bytes, host: bytes = b"localhost") -> tuple[int, bytes]:
    async with lane.client() as client:
        request = b"\r\n".join([b"GET %b HTTP/1.1" % path.encode(), b"Host: " + host, *lines, b"", b""])
        await client.send(request)
        response = await client.read_response()
        return response.status, response.payload


async def test_readiness_endpoint_reports_the_given_state() -> None:
    """200 while requests are welcome, 503 afterwards; liveness does not care."""
    expected: tuple[tuple[Readiness, int], ...] = (("ready", 200), ("draining", 503), ("store_lost", 503))
    for ready, code in expected:
        async with assembled(pages=pages(ready=ready), own_paths=PATHS) as lane:
            status, body = await asked(lane, "/health/ready")
            assert (status, json.loads(body)) == (code, {"status": ready})
            assert (await asked(lane, "/health/live"))[0] == 200


async def test_metrics_page_returns_the_exposition_or_404() -> None:
    """As it is; without one there is no such page."""
    async with assembled(pages=pages(exposition=b"x 1\n"), own_paths=PATHS) as lane:
        assert await asked(lane, "/metrics") == (200, b"x 1\n")
    async with assembled(pages=pages(exposition=None), own_paths=PATHS) as lane:
        status, body = await asked(lane, "/metrics")
        assert (status, json.loads(body)["error"]["code"]) == (404, "unknown_route")
        assert (await asked(lane, "/gone"))[0] == 404


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (b"text/plain", b"text/plain; version=0.0.4; charset=utf-8"),
        (b"*/*", b"text/plain; version=0.0.4; charset=utf-8"),
        (
            b"application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2",
            b"application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
        ),
    ],
)
async def test_metrics_format_follows_the_accept_header(accept: bytes, kind: bytes) -> None:
    """As Prometheus asks: OpenMetrics if it takes that."""
    async with assembled(pages=pages(), own_paths=PATHS) as lane, lane.client() as client:
        await client.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: %b\r\n\r\n" % accept)
        response = await client.read_response()
        assert response.list_values(b"content-type") == [kind]
        assert response.payload == (b"# EOF\n" if b"openmetrics" in kind else b"metric 1\n")


async def test_failing_page_returns_500_without_details() -> None:
    """500 in our form, with the request id that the log has."""

    async def breaks(_: bool) -> bytes:
        raise RuntimeError("secret detail")

    app = guarded(exposition=breaks)
    async with assembled(pages=app, own_paths=PATHS) as lane:
        status, body = await asked(lane, "/metrics")
        assert (status, json.loads(body)["error"]["code"]) == (500, "internal_error")
        assert b"secret" not in body


@pytest.mark.parametrize(
    "path",
    [
        "/context/memories?user=anna",
        "/context/runs",
        "/context/runs/run_none",
        "/context/approvals",
        "/context/usage",
        "/context/models",
        "/context/v1/responses/resp_none",
        "/context/v1/conversations/conv_none",
        "/v1/system-prompts",
        "/context/none",
        "/metrics",
    ],
)
async def test_answers_for_keys_have_cache_control_no_store(path: str) -> None:
    """Keys come in a header that caches do not know: one would give the page to whoever asks next."""
    keys, upstream = [key("anna", "context", "metrics")], {"api_key": "sk-upstream"}
    async with talking(says("Hi."), keys=keys, upstream=upstream) as world:
        for headers in ({"X-Gateway-Key": "anna"}, {}):
            for ask in (world.session.get, world.session.head):
                async with ask(path, headers=headers) as response:
                    assert response.headers.getall("Cache-Control") == ["no-store"], response.status
        async with world.session.get("/health/live") as response:
            assert "Cache-Control" not in response.headers


async def test_requests_from_gateway_tools_cannot_reach_protected_pages() -> None:
    """A model that asks for a page by a tool would decide on its own calls; liveness under `/` says nothing."""
    async with assembled(pages=pages(), own_paths=PATHS) as lane:
        status, body = await asked(lane, "/metrics", b"x-gateway-tool: http_request")
        assert (status, json.loads(body)["error"]["code"]) == (403, "origin_not_allowed")
        assert (await asked(lane, "/", b"X-Gateway-Tool: http_request"))[0] == 200


async def test_retry_after_is_sent_in_seconds_and_milliseconds() -> None:
    """Whole seconds, rounded up, for everybody; the exact time for those who look for it."""

    async def limited(_request: web.Request) -> web.StreamResponse:
        raise GatewayError("upstream_limited", "Not so fast.", retry_after_s=1.005)

    further = guarded(further=[("GET", "/limited", limited)])
    async with assembled(pages=further, own_paths=(b"/limited",)) as lane, lane.client() as client:
        await client.send(b"GET /limited HTTP/1.1\r\nHost: localhost\r\n\r\n")
        response = await client.read_response()
        assert (response.list_values(b"retry-after"), response.list_values(b"retry-after-ms")) == ([b"2"], [b"1005"])
