"""A request to one endpoint: over an idle connection, or one that is opened for it."""

import pytest
from lanes.assembled import assembled

from gateway.lanes.passthrough.dispatch.dispatcher import DIRECT, Direct, Dispatcher
from gateway.lanes.passthrough.dispatch.failover import Failover
from gateway.lanes.passthrough.dispatch.hedge import Hedge
from gateway.lanes.passthrough.dispatch.model_routing import ModelRouting
from gateway.testing.scripts import build_answer, serve

GET = b"GET /v1/x HTTP/1.1\r\nHost: gw\r\n\r\n"


async def test_the_second_request_takes_the_connection_of_the_first() -> None:
    async with assembled(serve(build_answer(200, b"one"))) as lane, lane.client() as client:
        for _ in range(2):
            await client.send(GET)
            assert (await client.read_response()).payload == b"one"
        assert len(await lane.upstream.wait_connections(1)) == 1


@pytest.mark.parametrize("kind", [Direct, Failover, Hedge, ModelRouting])
def test_each_dispatcher_has_all_phases(kind: type[Dispatcher]) -> None:
    """With the arguments of the protocol; none of them stands on more than three classes of ours."""
    assert len(kind.__mro__) <= 4
    for phase in (
        "start",
        "note_request_piece",
        "on_connected",
        "on_response_bytes",
        "attempt_failed",
        "stop",
        "drop",
        "end",
    ):
        ours, theirs = getattr(kind, phase), getattr(Dispatcher, phase)
        assert (
            ours.__code__.co_varnames[: ours.__code__.co_argcount]
            == (theirs.__code__.co_varnames[: theirs.__code__.co_argcount])
        )


def test_direct_dispatcher_is_stateless() -> None:
    """One serves all of them."""
    assert not vars(DIRECT) and not DIRECT.awaits_body
