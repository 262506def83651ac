"""The merged list of models, over real sockets. That of one upstream, as it is, is in tests/model/test_call.py."""

from collections.abc import Sequence

import orjson
import pytest

from gateway.contracts.caller import LOCAL, Caller
from gateway.contracts.storage.store import Json
from gateway.model.listing import PAUSE_S, ListingClient
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import Script
from tests.agent.models import SECRET, Models, models

CREDENTIAL = b"Authorization: Bearer sk-client\r\n"


def lists(*names: str, **facts: object) -> Script:
    data = [{"id": name, "object": "model", **facts} for name in names]
    return serve(build_answer(200, orjson.dumps({"object": "list", "data": data})))


async def silent(peer: Peer) -> None:
    """Accepts, and says nothing."""
    await peer.read_request()
    await peer.wait_end(timeout_s=None)


async def listed(answering: Models, *, caller: Caller = LOCAL) -> list[Json]:
    status, kind, content = await answering.core.fetch_models(
        ListingClient(caller, lines=b"X-One: 1\r\n", credential=CREDENTIAL, header=b"authorization")
    )
    found = orjson.loads(content)
    assert (status, kind, found["object"]) == (200, "application/json", "list")
    data: list[Json] = found["data"]
    return data


async def names(answering: Models, *, caller: Caller = LOCAL) -> Sequence[str]:
    return [model["id"] for model in await listed(answering, caller=caller)]


async def test_model_list_contains_aliases_and_models_of_all_upstreams() -> None:
    """Aliases first, then each upstream's models whose requests go to it: an id of several is the first one's."""
    each = (lists("gpt-5", "claude-x", of="up0"), lists("claude-x", "gpt-5", "llama", "fast", of="up1"))
    async with models(
        each=each, patterns=(("gpt-*",), ()), aliases={"fast": [("gpt-5", None)]}, lists_all=True
    ) as made:
        assert await listed(made) == [
            {"id": "fast", "object": "model", "created": 0, "owned_by": "gateway"},
            {"id": "gpt-5", "object": "model", "of": "up0"},
            {"id": "claude-x", "object": "model", "of": "up1"},
            {"id": "llama", "object": "model", "of": "up1"},
        ]


async def test_the_clients_credential_goes_to_the_first_upstream_only() -> None:
    """To which it goes when the list is that one's own. The other lines go to all."""
    async with models(each=(lists("a"), lists("b")), patterns=((), ("b",)), lists_all=True) as made:
        assert await names(made) == ["a", "b"]
        (first,), (second,) = (upstream.requests for upstream in made.upstreams)
        assert (
            first.list_values(b"authorization") == [b"Bearer sk-client"] and second.list_values(b"authorization") == []
        )
        assert first.list_values(b"x-one") == second.list_values(b"x-one") == [b"1"]


@pytest.mark.parametrize(
    "broken",
    [
        silent,
        serve(build_answer(503, b"{}")),
        serve(build_answer(401, b"{}")),
        serve(build_answer(200, b"[]")),
        serve(build_answer(200, b'{"data": {}}')),
        serve(build_answer(200, b"{")),
        serve(build_answer(200, b'{"data": [' + b"0," * 300_000 + b"0]}")),
    ],
)
async def test_failing_upstream_is_skipped_in_the_model_list_until_retry(broken: Script) -> None:
    """The others are listed without it, and it is left alone for a while."""
    each, patterns = (broken, lists("b", "c")), ((), ("b", "c"))
    async with models(each=each, patterns=patterns, lists_all=True, api_key=SECRET) as made:
        assert await names(made) == await names(made) == ["b", "c"]
        assert len(made.upstreams[0].requests) == 1
        made.clock.advance(PAUSE_S)
        await names(made)
        assert len(made.upstreams[0].requests) == 2


@pytest.mark.parametrize(("facts", "later"), [({"api_key": SECRET}, ["a", "b"]), ({}, ["b"])])
async def test_last_model_list_of_a_failing_upstream_stays_listed(facts: dict[str, bytes], later: list[str]) -> None:
    """With the gateway's own key. A list that was made for a client's credential is nobody else's."""

    async def then_broken(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_answer(200, orjson.dumps({"data": [{"id": "a"}]})))
        await peer.read_request()
        await peer.send(build_answer(500, b"{}"))

    async with models(each=(then_broken, lists("b")), patterns=((), ("b",)), lists_all=True, **facts) as made:
        assert await names(made) == ["a", "b"]
        assert await names(made) == later
        assert await names(made) == later


async def test_rejected_client_credential_does_not_hide_models_from_others() -> None:
    """Its credential is at fault: the upstream is asked again for the next client."""

    async def refuses_once(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_answer(401, b"{}"))
        await lists("a")(peer)

    async with models(each=(refuses_once, lists("b")), patterns=((), ("b",)), lists_all=True) as made:
        assert await names(made) == ["b"]
        assert await names(made) == ["a", "b"]


@pytest.mark.parametrize("status", [400, 431])
async def test_refused_client_headers_do_not_remove_models_from_the_list(status: int) -> None:
    """The gateway's own key is not at fault: what was listed last is listed, and the upstream is asked again."""

    async def then_refuses(peer: Peer) -> None:
        for answered in (build_answer(200, orjson.dumps({"data": [{"id": "a"}]})), build_answer(status, b"{}")):
            await peer.read_request()
            await peer.send(answered)
        await lists("a", "new")(peer)

    each = (then_refuses, lists("b"))
    async with models(each=each, patterns=((), ("b",)), lists_all=True, api_key=SECRET) as made:
        assert await names(made) == ["a", "b"]
        assert await names(made) == ["a", "b"]
        assert await names(made) == ["a", "new", "b"]


async def test_models_without_a_usable_id_are_left_out() -> None:
    """The others are listed as they are."""
    data = [{"id": 5}, {"object": "model"}, "x", {"id": "a", "owned_by": "me"}]
    async with models(serve(build_answer(200, orjson.dumps({"data": data}))), lists_all=True) as made:
        assert await listed(made) == [{"id": "a", "owned_by": "me"}]


async def test_long_model_list_is_read_whole() -> None:
    """Whole."""
    long = [f"model-{i}" for i in range(5000)]
    async with models(lists(*long), lists_all=True) as made:
        assert await names(made) == long
