"""The page of upstreams: states in words, sums, and the table that an open page asks for."""

from pathlib import Path

from gateway.console.pages.upstreams import build_upstream_row
from tests.console.browsing import key, served

FACTS = {"requests": {"connect": 3, "ok": 5, "error": 1}, "retries": {"connect": 2, "fallback": 1}, "endpoints": []}
ENDPOINTS = [{"url": "http://127.0.0.1:9/v1", "name": "first"}, {"url": "http://127.0.0.1:10/v1"}]


def test_upstream_outcomes_are_described_in_a_fixed_order() -> None:
    shown = build_upstream_row(FACTS)
    assert shown.outcomes == [("answered", 5), ("answered with 5xx", 1), ("no connection", 3)]
    assert shown.retried == 3


async def test_an_operator_sees_each_endpoint(tmp_path: Path) -> None:
    """Its state in words; the status leads there."""
    upstreams = [
        {"name": "up", "endpoints": ENDPOINTS, "health": {}},
        {"name": "own", "base_url": "http://127.0.0.1:8"},
    ]
    async with served(tmp_path, key("root"), upstreams=upstreams) as browser:
        group = browser.gateway.gateway._listeners["listen"].router.groups[0]
        group.apply_health_check(group.members[1], failing="it answered 500")
        root = await browser.signed_in("root")
        assert "/console/status/upstreams" in (await root.get("/console/status")).links
        page = await root.get("/console/status/upstreams")
        assert (page.status, page.heading) == (200, "Upstreams")
        for text in ("first", "http://127.0.0.1:9/v1", "127.0.0.1:10", "fails its health checks", "own"):
            assert text in page.main, text
        assert (await root.get("/console/upstreams")).path == "/console/status/upstreams"
        part = await root.get("/console/status/upstreams", HX_Request="true")
        assert part.html.lstrip().startswith('<div id="upstreams" hx-get="/console/status/upstreams"')


async def test_upstreams_page_is_restricted_to_operators(tmp_path: Path) -> None:
    async with served(tmp_path, key("ann", "context", "approve")) as browser:
        assert (await (await browser.signed_in("ann")).get("/console/status/upstreams")).status == 403
