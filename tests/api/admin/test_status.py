"""The page of the gateway's status."""

import platform
from typing import Any

import aiohttp
import pytest
from gateways import key

from gateway import __version__
from gateway.api.admin.status import STATUS
from gateway.telemetry.history import STEP_S
from gateway.testing.local_gateway import LocalGateway


async def test_status_page_reports_the_versions_in_use() -> None:
    async with (
        LocalGateway({"upstreams": []}) as made,
        aiohttp.ClientSession(made.base_url) as session,
        session.get(STATUS) as response,
    ):
        answer: Any = await response.json()
    versions = {"version": __version__, "python": platform.python_version(), "aiohttp": aiohttp.__version__}
    assert answer.items() >= {"object": "status", **versions}.items()
    (point,) = answer["history"].pop("points")
    assert answer["history"] == {"step_s": STEP_S}
    assert [*point] == ["at", "span_s", "requests", "errors", "overhead_ms", "approval_wait_s", "pending"]


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
