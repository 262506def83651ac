"""Probes of upstreams: what an answer to `GET /models` says about an endpoint, its key and the clocks."""

import email.utils
import time
from pathlib import Path

import pytest
from unanswered_ports import refusing_port

from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream
from tests.cli.doctor.examined import examined


@pytest.mark.parametrize(
    ("status", "key", "level", "text"),
    [
        (200, "api_key: k", "ok", "answered 200 in "),
        (401, "api_key: k", "fail", "it refuses the gateway's own key (401)"),
        (403, "api_key: k", "fail", "it refuses the gateway's own key (403)"),
        (402, "api_key: k", "fail", "it refuses the gateway's own key (402)"),
        (401, "weight: 1", "ok", "wants a key (401), which its clients bring"),
        (404, "weight: 1", "warn", "has no list of models (404)"),
        (307, "weight: 1", "warn", "it answered 307 in place of a list"),
        (503, "weight: 1", "fail", "it fails with 503"),
    ],
)
async def test_doctor_reports_endpoint_state_from_its_answer(
    tmp_path: Path, status: int, key: str, level: str, text: str
) -> None:
    async with FakeUpstream(serve(build_answer(status, b"{}"))) as fake:
        endpoint = f"upstreams: [{{name: up, endpoints: [{{name: one, url: '{fake.base_url}/v1', {key}}}]}}]"
        found = (await examined(endpoint, folder=tmp_path))["up one"]
    assert (found.level, text in found.text) == (level, True), found
    assert fake.requests[0].target == b"/v1/models"


async def test_doctor_fails_an_unreachable_endpoint(tmp_path: Path) -> None:
    with refusing_port() as port:
        found = await examined(f"upstreams: [{{name: up, base_url: 'http://127.0.0.1:{port}/v1'}}]", folder=tmp_path)
    assert found[f"up 127.0.0.1:{port}"].level == "fail"
    assert "Connection refused" in found[f"up 127.0.0.1:{port}"].text and "clock" not in found


@pytest.mark.parametrize(("off_s", "level", "text"), [(0, "ok", "within"), (-600, "warn", "it is 60")])
async def test_doctor_compares_the_clock_with_the_upstream_date(
    tmp_path: Path, off_s: int, level: str, text: str
) -> None:
    date = email.utils.formatdate(time.time() + off_s, usegmt=True)
    async with FakeUpstream(serve(build_answer(200, b"{}", [("Date", date)]))) as fake:
        found = (await examined(f"upstreams: [{{name: up, base_url: '{fake.base_url}'}}]", folder=tmp_path))["clock"]
    assert found.level == level and found.text.startswith(text)
    assert ("ahead of" in found.text) is (off_s < 0)


async def test_doctor_reports_demo_model_without_upstreams(tmp_path: Path) -> None:
    assert (await examined("", folder=tmp_path))["upstreams"].text == "none: the built-in demo model answers"
