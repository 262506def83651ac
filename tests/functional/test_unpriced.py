"""Budgets of money fail closed: usage whose model is unknown, or has no price, counts at the highest prices."""

import json
from pathlib import Path
from typing import Any

import pytest
from functional.through import ask, client_of, get, post, through
from gateways import until, until_read
from usage.shapes import CHAT, USAGE, events, text

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import Script

PATH = b"/v1/chat/completions"
ASK = post(b'{"model":"m","messages":[]}', PATH)
SSE = ("Content-Type", "text/event-stream")
NAMELESS = events({"choices": [], "model": "", "usage": None}, {"choices": [], "model": "", "usage": USAGE})


@pytest.fixture
def priced(tmp_path: Path) -> dict[str, object]:
    """Prices of which none is that of the models here; a token of output costs 0.5 at most, and one of input 0.001."""
    file = tmp_path / "prices.yaml"
    file.write_text(
        "currency: USD\n"
        "prices: [{model: 'gpt-4.1*', input: 1000, output: 1}, {model: 'dear-*', input: 2, output: 500000}]\n"
    )
    return {"enabled": True, "prices": str(file)}


def of_day(most: float) -> dict[str, object]:
    """A budget of everybody, where there are no keys."""
    return {"tenants": {"local": {"cost_per_day": most}}}


async def usage_of(gateway: LocalGateway, by: str = "model") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((await ask(gateway, get(b"/context/usage?by=" + by.encode()))).payload)[
        "data"
    ]
    return found


async def spent_of(gateway: LocalGateway) -> float:
    (row,) = json.loads((await ask(gateway, get(b"/context/limits"))).payload)["data"]
    return float(row["used"])


WITHOUT = {
    "a model without a price": (
        serve(build_answer(200, text({**CHAT, "model": "llama"}))),
        "llama",
        10 * 0.5 + 19 * 0.001,
    ),
    "an empty name": (serve(build_answer(200, NAMELESS, [SSE])), "", 10 * 0.5 + 19 * 0.001),
}


@pytest.mark.parametrize(("upstream", "model", "cost"), WITHOUT.values(), ids=WITHOUT)
async def test_usage_without_a_price_counts_at_the_highest_prices(
    priced: dict[str, object], upstream: Script, model: str, cost: float
) -> None:
    """For the budget; the usage still says that its cost is not known."""
    async with through(upstream, usage=priced, limits=of_day(1.0)) as (gateway, _):
        assert (await ask(gateway, ASK)).status == 200
        refused = await ask(gateway, ASK)
        assert (refused.status, json.loads(refused.payload)["error"]["code"]) == (429, "rate_limit_exceeded")
        await until_read(lambda: ask(gateway, ASK), lambda response: b'"insufficient_quota"' in response.payload)
        (row,) = [row for row in await usage_of(gateway) if row["input"]]
        assert (row["model"], row["cost"], row["currency"]) == (model, None, None)
        whole = pytest.approx(cost * (row["requests"] - row["rejected"]))
        await until_read(lambda: spent_of(gateway), lambda spent: spent == whole)


async def test_early_disconnect_is_charged_to_the_budget(priced: dict[str, object]) -> None:
    """The upstream has the request, and a model that nobody has named."""

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_end()

    long = post(b'{"model":"m","messages":["%b"]}' % (b"x" * 4000), PATH)
    async with through(silent, usage=priced, limits=of_day(1.0)) as (gateway, fake):
        async with client_of(gateway) as client:
            await client.send(long)
            await until(lambda: bool(fake.requests))
        await until_read(lambda: spent_of(gateway))
        (row,) = await usage_of(gateway)
        assert (row["model"], row["cut"], row["cost"]) == ("", 1, None)
        assert (await ask(gateway, ASK)).status == 429


async def test_zero_priced_models_cost_nothing(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("currency: USD\nprices: [{model: 'dear', input: 9, output: 9}, {model: '*', input: 0}]\n")
    usage = {"enabled": True, "prices": str(file)}
    async with through(serve(build_answer(200, text(CHAT))), usage=usage, limits=of_day(0.0001)) as (gateway, _):
        for _ in range(3):
            assert (await ask(gateway, ASK)).status == 200
        (row,) = await usage_of(gateway)
        assert (row["requests"], row["cost"], row["currency"]) == (3, 0.0, "USD")
        assert await spent_of(gateway) == 0


async def test_model_named_only_by_the_request_is_recorded_without_a_price(priced: dict[str, object]) -> None:
    """Its client may name it twice, and its upstream may read the other one."""
    unread = serve(build_answer(200, b"x" * 10, [("Content-Encoding", "br")]))
    body = b'{"model":"gpt-4.1","messages":[],"model":"dear-1"}'
    by_model = {"by_model": True}
    async with through(unread, usage=priced, limits=of_day(1.0), passthrough=by_model) as (gateway, _):
        assert (await ask(gateway, post(body, PATH))).status == 200
        (row,) = await usage_of(gateway)
        assert (row["model"], row["estimated"], row["output"], row["cost"]) == ("gpt-4.1", 1, 10, None)
        spent = await until_read(lambda: spent_of(gateway))
        assert spent == pytest.approx(10 * 0.5 + 13 * 0.001)


async def test_refused_request_is_recorded_with_its_requested_model(priced: dict[str, object]) -> None:
    """Refused by its upstream, or by a limit of its model."""
    limits = {"models": {"two": {"requests_per_minute": 1}}}
    settings: dict[str, object] = {"usage": priced, "limits": limits, "passthrough": {"by_model": True}}
    async with through(serve(build_answer(500, b"{}")), **settings) as (gateway, _):
        for model, status in ((b"one", 500), (b"two", 500), (b"two", 429)):
            assert (await ask(gateway, post(b'{"model":"%b"}' % model, PATH))).status == status
        rows = await until_read(lambda: usage_of(gateway), lambda rows: len(rows) == 2)
        assert {row["model"]: (row["rejected"], row["cost"]) for row in rows} == {"one": (1, None), "two": (2, None)}


async def test_a_model_has_its_price_in_any_letter_case(tmp_path: Path) -> None:
    """An upstream that takes any repeats what its client wrote, which is no reason for a lower price."""
    file = tmp_path / "prices.yaml"
    file.write_text(
        "currency: USD\nprices: [{model: 'Llama3*', input: 1000, output: 1000}, {model: '*', input: 0, output: 0}]\n"
    )
    answers = iter(("llama3", "LLaMA3:8b"))
    said = serve(lambda _: build_answer(200, text({**CHAT, "model": next(answers)})))
    settings: dict[str, object] = {"usage": {"enabled": True, "prices": str(file)}}
    settings["limits"] = {"models": {"LLAMA3*": {"cost_per_day": 100}}}
    async with through(said, **settings) as (gateway, _):
        for _ in range(2):
            assert (await ask(gateway, ASK)).status == 200
        rows = await until_read(lambda: usage_of(gateway), lambda rows: len(rows) == 2)
        assert {row["model"]: row["cost"] for row in rows} == {"llama3": 0.029, "LLaMA3:8b": 0.029}
        assert await until_read(lambda: spent_of(gateway), lambda spent: spent == pytest.approx(0.058))


async def test_streamed_images_are_charged_to_their_budget(tmp_path: Path) -> None:
    """Their usage stands behind a picture in one long event; one that breaks off is estimated."""
    told = {"input_tokens": 50, "output_tokens": 4000, "total_tokens": 4050}
    picture = {"b64_json": "A" * 300_000, "output_format": "png"}
    stream = events(
        {"type": "image_generation.partial_image", **picture},
        {"type": "image_generation.completed", **picture, "usage": told},
    )
    drawn = post(b'{"model":"gpt-image-1","prompt":"a cat","stream":true}', b"/v1/images/generations")
    answers = iter((build_answer(200, stream, [SSE]), build_answer(200, stream[:-200], [SSE])))
    settings: dict[str, object] = {
        "usage": {"enabled": True},
        "limits": {"tenants": {"local": {"tokens_per_day": 4060}}},
    }
    async with through(serve(lambda _: next(answers)), **settings) as (gateway, fake):
        for _ in range(2):
            assert (await ask(gateway, drawn)).status == 200
        (row,) = await until_read(lambda: usage_of(gateway), lambda rows: bool(rows) and rows[0]["requests"] == 2)
        assert (row["input"], row["output"], row["estimated"]) == (50 + 14, 4000, 1)
        await until_read(lambda: spent_of(gateway), lambda spent: spent >= 4060)
        assert (await ask(gateway, drawn)).status == 429
        assert len(fake.requests) == 2
