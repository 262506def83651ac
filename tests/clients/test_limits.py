"""A limit as openai-python meets it: the client waits as long as it is told, and tries again."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import urlopen

import openai
import pytest

from tests.clients.ask import Ask
from tests.clients.conftest import running
from tests.clients.worker import Worker

pytestmark = pytest.mark.clients

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "Say hello"}]}


def config(tmp_path: Path, **limits: object) -> str:
    upstreams: list[object] = []
    store = f"sqlite:///{tmp_path}/gateway.db"
    return json.dumps({"upstreams": upstreams, "store": store, "limits": {"tenants": {"local": limits}}})


@pytest.mark.parametrize("base", ["/v1", "/context/v1"])
def test_rate_limit_error_names_the_tenant_and_retry_time(tmp_path: Path, base: str) -> None:
    with (
        running(config(tmp_path, requests_per_minute=1)) as gateway,
        openai.OpenAI(base_url=gateway.base_url + base, api_key="x", max_retries=0) as client,
    ):
        client.chat.completions.create(**CHAT)  # type: ignore[call-overload]
        with pytest.raises(openai.RateLimitError, match="The tenant 'local' has reached its limit of 1") as raised:
            client.chat.completions.create(**CHAT)  # type: ignore[call-overload]
    assert raised.value.code == "rate_limit_exceeded"
    assert 0 < int(raised.value.response.headers["retry-after"]) <= 60
    assert raised.value.response.headers["x-ratelimit-remaining-requests"] == "0"


def test_client_retries_after_a_concurrency_refusal(tmp_path: Path) -> None:
    """The place is free once the stream is read, and the request that was refused before gets its answer."""
    slow = [{"role": "user", "content": "drip 100 long 30"}]
    with (
        running(config(tmp_path, concurrent=1)) as gateway,
        openai.OpenAI(base_url=f"{gateway.base_url}/v1", api_key="x", max_retries=9) as client,
        ThreadPoolExecutor() as threads,
    ):
        with client.chat.completions.create(model="demo", messages=slow, stream=True) as stream:  # type: ignore[call-overload]
            next(iter(stream))
            asking = threads.submit(lambda: client.chat.completions.with_raw_response.create(**CHAT))  # type: ignore[call-overload]
            refused = 'gateway_limit_refused_total{limit="concurrent",scope="tenant"}'
            assert any(refused in metrics(gateway.base_url) for _ in range(2000))
        tried = asking.result()
    assert tried.status_code == 200 and tried.retries_taken >= 1


def metrics(url: str) -> str:
    with urlopen(f"{url}/metrics") as page:  # ours
        text: str = page.read().decode()
    return text


def test_openai_node_retries_after_the_retry_after_interval(tmp_path: Path, node: Worker) -> None:
    """As openai-python does; an error that it is not to repeat has its reason."""
    slow = [{"role": "user", "content": "drip 100 long 3000"}]
    refused = 'gateway_limit_refused_total{limit="concurrent",scope="tenant"}'
    with (
        running(config(tmp_path, concurrent=1)) as gateway,
        openai.OpenAI(base_url=f"{gateway.base_url}/v1", api_key="x", max_retries=0) as client,
        ThreadPoolExecutor() as threads,
    ):
        ask = node.client("openai")
        with client.chat.completions.create(model="demo", messages=slow, stream=True) as stream:  # type: ignore[call-overload]
            next(iter(stream))
            once = ask(Ask(root=gateway.base_url, prompt="Say hello", retries=0))
            asking = threads.submit(ask, Ask(root=gateway.base_url, prompt="Say hello", retries=9))
            assert any(_value(gateway.base_url, refused) >= 2 for _ in range(2000))
        assert asking.result().failure is None and asking.result().text
    assert once.failure is not None
    assert (once.failure.kind, once.failure.status) == ("RateLimitError", 429)
    assert once.failure.headers["retry-after"] == "1" and "under way" in once.failure.message


def _value(url: str, sample: str) -> float:
    lines = metrics(url).splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(sample)), 0.0)
