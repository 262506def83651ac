"""GET /openapi.json: for everybody."""

import json

import pytest
from functional.through import ask, get, through
from gateways import key

from gateway.api.openapi.document import describe_api


@pytest.mark.parametrize("keys", [[], [key("k")]])
async def test_openapi_page_is_served_without_a_key(keys: list[object]) -> None:
    """Under our own names, as JSON."""
    async with through(keys=keys) as (gateway, upstream):
        answer = await ask(gateway, get(b"/openapi.json"))
        assert (answer.status, json.loads(answer.payload)) == (200, json.loads(describe_api()))
        assert (await ask(gateway, get(b"/openapi.json", method=b"HEAD"))).payload == b""
        assert (await ask(gateway, get(b"/openapi.json").replace(b"gw.example", b"evil.example"))).status == 403
        assert not upstream.requests
