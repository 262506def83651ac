"""`gateway limits`: one limit a line."""

import json

from cli_cases import told

from gateway.cli.operator.remote import Remote
from gateway.features.limits.command import list_limits
from gateway.testing.local_gateway import LocalGateway


async def test_limits_are_listed() -> None:
    """No terminal obeys the name of a tenant."""
    few = {"requests_per_minute": 60, "soft": True}
    limits = {"tenants": {"local": {"concurrent": 2}, "red": few}}
    async with LocalGateway({"upstreams": [], "limits": limits}) as gateway:
        lines = await told(lambda: list_limits(Remote(gateway.base_url, None), as_json=False))
        assert lines == ["tenant local: 0 of 2 concurrent", "tenant red: 0 of 60 requests per minute, soft"]
        first, _ = await told(lambda: list_limits(Remote(gateway.base_url, None), as_json=True))
        assert json.loads(first)["most"] == 2


async def test_limits_command_prints_none_without_limits() -> None:
    async with LocalGateway({"upstreams": []}) as gateway:
        assert await told(lambda: list_limits(Remote(gateway.base_url, None), as_json=False)) == ["none"]
