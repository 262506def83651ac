"""Limits that gateways share: when they are shared, and that both lanes wait for them."""

import json
import subprocess
import sys

import pytest
from functional.several import CHAT
from functional.through import HOSTS, NO_WORKFLOWS, PATIENT, client_of, post
from gateways import exchange, fetch, key

from gateway.config.schema.settings import Settings
from gateway.features.limits.service_sharing import shares_limits
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.scripts import build_ok_answer, serve
from gateway.testing.upstream import FakeUpstream

KEY = "gw-shared-1"
CONTEXT = b"/context/v1/chat/completions"
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
USAGE = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
MESSAGE = {"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}
FINE = build_ok_answer(json.dumps({"model": "m", "choices": [MESSAGE], "usage": USAGE}).encode())


@pytest.mark.parametrize(("shared", "found"), [(None, False), (True, True), (False, False)])
def test_gateways_on_sqlite_share_limits_where_the_configuration_says_so(shared: bool | None, found: bool) -> None:
    """A store of one machine is seldom that of several gateways."""
    settings = Settings.model_validate({"limits": {"shared": shared}})
    assert shares_limits(settings) is found


def test_a_valkey_server_is_there_to_share_limits() -> None:
    """Also with SQLite, where gateways share none by default."""
    settings = Settings.model_validate({"limits": {"valkey": "valkey://127.0.0.1:6379/0"}})
    assert shares_limits(settings) is True


def test_client_of_valkey_is_loaded_only_where_it_is_configured() -> None:
    """A gateway without such a server does without the library."""
    code = "import gateway.features.limits.service, sys; print('valkey' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def shared_config(upstream: FakeUpstream, **own: object) -> dict[str, object]:
    entry = {"name": "up", "base_url": upstream.base_url + "/v1", "timeouts": PATIENT, **own}
    limited = {**key(KEY, "passthrough", "context", "admin"), "limits": {"requests_per_minute": 3, "concurrent": 2}}
    limits = {"shared": True, "models": {"m": {"requests_per_minute": 100, "tokens_per_minute": 10_000}}}
    return {
        "upstreams": [entry],
        "keys": [limited],
        "limits": limits,
        "allowed_hosts": HOSTS,
        "workflows": NO_WORKFLOWS,
    }


@pytest.mark.parametrize("path", [CHAT, CONTEXT])
async def test_request_waits_for_the_share_of_all_its_limits(path: bytes) -> None:
    """Of its key, its model and its upstream. The one too many is refused, and the page shows what is used."""
    async with FakeUpstream(serve(FINE)) as upstream:
        config = shared_config(upstream, limits={"requests_per_minute": 50})
        async with LocalGateway(config) as gateway, client_of(gateway) as client:
            request = post(BODY, path, b"X-Gateway-Key: " + KEY.encode())
            answers = [await exchange(client, request) for _ in range(4)]
            assert [answer.status for answer in answers] == [200, 200, 200, 429]
            assert answers[3].list_values(b"x-ratelimit-remaining-requests") == [b"0"]
            page = await fetch(gateway, b"/context/limits", b"X-Gateway-Key: " + KEY.encode())
            used = {(one["scope"], one["limit"]): one["used"] for one in json.loads(page.payload)["data"]}
            assert used["key", "requests_per_minute"] == 3 and used["upstream", "requests_per_minute"] == 3
            metrics = (await fetch(gateway, b"/metrics", b"X-Gateway-Key: " + KEY.encode())).payload
            assert b"gateway_limit_sharing_up 1.0" in metrics
            assert b'gateway_limit_refused_total{limit="requests_per_minute",scope="key"} 1.0' in metrics
