"""`gateway upstreams`: an upstream with its endpoints, a line each."""

import json
import re

from cli_cases import told
from functional.several import chat, several
from functional.through import ask

from gateway.cli.operator.remote import Remote
from gateway.cli.operator.upstreams import list_upstreams
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.scripts import build_answer, build_ok_answer, serve


async def test_upstreams_are_listed() -> None:
    """With the endpoint that failed, and how often requests were sent again."""
    async with several(
        serve(build_answer(502)), serve(build_ok_answer()), breaker={"failures": 2, "open": "1h", "longest": "1h"}
    ) as up:
        for _ in range(4):
            assert (await ask(up.gateway, chat())).status == 200
        lines = await told(lambda: list_upstreams(Remote(up.gateway.base_url, None), as_json=False))
        assert [re.sub(r"in 3[0-9.]+ s", "in N s", line) for line in lines] == [
            "up: 6 requests sent, 2 failed, 2 retried",
            "  a: open, tried again in N s; 0 under way; 2 tries, 2 failed; taken out: 1; "
            "answers 2 x 502, the last 502",
            "  b: up; 0 under way; 4 tries, 0 failed",
        ]
        (line,) = await told(lambda: list_upstreams(Remote(up.gateway.base_url, None), as_json=True))
        assert json.loads(line)["endpoints"][0]["state"] == "open"
        assert [(one["answers"], one["last_status"]) for one in json.loads(line)["endpoints"]] == [
            ({"502": 2}, 502),
            ({"200": 4}, 200),
        ]


async def test_upstreams_command_shows_only_state_without_retry_rules() -> None:
    async with LocalGateway({"upstreams": [{"name": "up", "base_url": "http://127.0.0.1:9/v1"}]}) as gateway:
        lines = await told(lambda: list_upstreams(Remote(gateway.base_url, None), as_json=False))
        assert lines == ["up: 0 requests sent, 0 failed", "  127.0.0.1:9: up"]
