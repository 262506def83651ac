"""The scripted model: behind a stage, and behind a gateway."""

import json

import pytest

from gateway.testing import ScriptedModel, collect_answer, connect, make_exchange
from gateway.testing.local_gateway import LocalGateway

USED = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}


async def pass_on(exchange, call_next):  # type: ignore[no-untyped-def]
    return await call_next(exchange)


async def test_scripted_model_answers_in_order() -> None:
    """Texts, chunks, errors; it shows what it got and how many replies were released."""
    model = ScriptedModel("one", ["t", "wo"], ValueError("three"))
    assert await collect_answer(pass_on, make_exchange("a"), model) == ["one"]
    assert await collect_answer(pass_on, make_exchange("b"), model) == ["t", "wo"]
    with pytest.raises(ValueError, match="three"):
        await collect_answer(pass_on, make_exchange("c"), model)
    assert [exchange.body["messages"][0]["content"] for exchange in model.exchanges] == ["a", "b", "c"]
    assert model.n_released == 2


async def test_unscripted_model_request_fails_with_the_next_step() -> None:
    """With the next step."""
    with pytest.raises(AssertionError, match="got request 1 and the test scripted 0 answers: pass one more"):
        await collect_answer(pass_on, make_exchange(), ScriptedModel())


def test_make_exchange_fills_in_defaults() -> None:
    """The rest has values of its own."""
    exchange = make_exchange("a", {"role": "assistant", "content": "b"}, body={"stream": True}, notes=("n",), id="x")
    assert exchange.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        "stream": True,
    }
    assert (exchange.id, exchange.notes, exchange.chain) == ("x", ("n",), "assistant")
    assert make_exchange().body["messages"] == [{"role": "user", "content": "Hello?"}]


@pytest.mark.parametrize("stream", [False, True])
async def test_scripted_model_serves_as_an_upstream(stream: bool) -> None:
    """Of a whole gateway, for both ways to answer."""
    async with (
        ScriptedModel(["Hel", "lo.", USED], RuntimeError("busy")) as model,
        LocalGateway({"upstreams": [{"name": "up", "base_url": model.base_url}]}) as gateway,
    ):
        async with connect(gateway.host, gateway.port) as client:
            answers = []
            for _ in range(2):
                body = json.dumps(
                    {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
                ).encode()
                await client.send(
                    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
                )
                answers.append(await client.read_response())
        said = answers[0].payload.decode()
        if stream:
            frames = [json.loads(line[6:]) for line in said.split("\n\n") if line.startswith("data: {")]
            assert "".join(frame["choices"][0]["delta"].get("content", "") for frame in frames) == "Hello."
            assert said.endswith("data: [DONE]\n\n")
        else:
            assert json.loads(said)["choices"][0]["message"]["content"] == "Hello."
        assert answers[1].status == 500 and json.loads(answers[1].payload)["error"]["message"] == "busy"
        assert [request["stream"] for request in model.requests] == [stream, stream]
