"""The page of the gateway's status."""

import platform
from typing import Any

import aiohttp
import pytest
from gateways import key

from gateway import __version__
from gateway.api.admin.status import STATUS, GatewayStatus, UpstreamStatus, status_view
from gateway.contracts.figures import Point
from gateway.testing.local_gateway import LocalGateway

POINT = Point(at_s=90.0, span_s=60.0, requests=4, errors=1, overhead_ms=0.5, approval_wait_s=None, pending=2)


def test_status_page_reports_facts_and_versions() -> None:
    """With the versions in use."""
    status = GatewayStatus(
        now_s=100.0,
        started_s=40.0,
        workers=2,
        upstreams=[UpstreamStatus("up", "http://up/v1", None, 1, 2)],
        configuration={"workers": 2},
        problems=["one"],
        points=[POINT],
        step_s=60.0,
    )
    assert status_view(status) == {
        "object": "status",
        "version": __version__,
        "python": platform.python_version(),
        "aiohttp": aiohttp.__version__,
        "started_at": 40.0,
        "uptime_s": 60.0,
        "workers": 2,
        "upstreams": [
            {"name": "up", "base_url": "http://up/v1", "up": None, "idle": 1, "busy": 2},
        ],
        "configuration": {"workers": 2},
        "problems": ["one"],
        "history": {
            "step_s": 60.0,
            "points": [
                {
                    "at": 90.0,
                    "span_s": 60.0,
                    "requests": 4,
                    "errors": 1,
                    "overhead_ms": 0.5,
                    "approval_wait_s": None,
                    "pending": 2,
                }
            ],
        },
    }


@pytest.mark.parametrize(("caller", "status"), [("root", 200), ("boss", 403), ("user", 403), ("", 401)])
async def test_status_page_requires_admin_scope(caller: str, status: int) -> None:
    """It shows the configuration of all tenants."""
    keys = [key("root", "admin"), key("boss", "approve"), key("user", "context")]
    headers = {"X-Gateway-Key": caller} if caller else {}
    async with LocalGateway({"upstreams": [], "keys": keys}) as made, aiohttp.ClientSession(made.base_url) as session:
        async with session.get(STATUS, headers=headers) as response:
            answer: Any = await response.json()
            assert response.status == status and (status != 200 or answer["object"] == "status")
        async with session.get(STATUS + "?x=1", headers=headers) as response:
            assert response.status == (400 if status == 200 else status)
