"""An upstream that says absurd numbers of tokens takes the counting from nobody else."""

import json
from pathlib import Path

from functional.through import ask, get, post, through
from gateways import key, until_read

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.messages import Request
from gateway.testing.scripts import build_answer, serve
from gateway.usage.tokens import MOST

PATH = b"/v1/chat/completions"
NAMES = ("big", "bigger", "ci", "admin")


def said(request: Request) -> bytes:
    tokens = MOST - 1 if b"absurd" in request.raw_body else 30
    usage = {"prompt_tokens": tokens, "completion_tokens": tokens}
    return build_answer(200, json.dumps({"model": "m", "usage": usage, "choices": []}).encode())


async def status(gateway: LocalGateway, name: str, model: str) -> int:
    body = json.dumps({"model": model, "messages": []}).encode()
    return (await ask(gateway, post(body, PATH, b"X-Gateway-Key: sk-" + name.encode()))).status


async def test_overflowing_usage_sums_saturate_without_affecting_others(tmp_path: Path) -> None:
    """At the highest price: two such answers are more than 64 bits hold, of one key, and of two in a sum."""
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: USD\nprices: [{model: '*', input: 1000000, output: 1000000}]\n")
    keys = [{**key(f"sk-{name}", "passthrough", "admin"), "name": name} for name in NAMES]
    keys[2] |= {"tenant": "rival", "limits": {"tokens_per_day": 100}}
    usage = {"enabled": True, "prices": str(prices)}
    async with through(serve(said), keys=keys, usage=usage) as (gateway, _):
        for name in ("big", "bigger"):
            assert [await status(gateway, name, "absurd") for _ in range(4)] == [200] * 4

        async def costs() -> dict[str, float]:
            told = await ask(gateway, get(b"/context/usage?by=tenant", b"X-Gateway-Key: sk-admin"))
            return {row["tenant"]: row["cost"] for row in json.loads(told.payload)["data"]}

        assert [await status(gateway, "ci", "m") for _ in range(2)] == [200, 200]
        found = await until_read(costs, lambda found: found.get("rival", 0) > 0)
        assert max(found.values()) > 4e9 and found["rival"] == 120
        assert await until_read(lambda: status(gateway, "ci", "m"), lambda code: code == 429) == 429
