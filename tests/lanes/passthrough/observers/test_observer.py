"""The phases of an exchange: a feature of one file hears of each once, in order, and may refuse where it says so."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from functional.through import breathe
from lanes.assembled import assembled

from gateway.contracts.errors import GatewayError, UndecidedError
from gateway.lanes.passthrough.access_record import AccessRecord
from gateway.lanes.passthrough.observers.observer import (
    Observer,
    ObserverFactory,
    Observers,
    PassthroughFeature,
    PlannedRequest,
)
from gateway.lanes.passthrough.observers.tee import PayloadSink
from gateway.lanes.passthrough.plan_records import PlanTarget
from gateway.testing.scripts import build_answer, build_chunk, build_head, serve

POST = b"POST /v1/x HTTP/1.1\r\nHost: gw\r\nContent-Length: 2\r\n\r\n"
CHUNKED = b"POST /v1/x HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n"
REFUSAL = GatewayError("rate_limit_exceeded", "No more for now: try again later.", retry_after_s=1)


class Payload:
    """Keeps all of a payload."""

    takes_ends = False
    chunks = 1
    is_late = False

    def __init__(self) -> None:
        self.data = b""

    def keep(self, piece: bytes) -> None:
        self.data += piece

    def skip(self, length: int) -> None:
        raise AssertionError("nothing may be left out")


class Follower(Observer):
    """An observer that notes the phases, and refuses in some."""

    def __init__(self, feature: "Following", record: AccessRecord) -> None:
        self._feature = feature
        self._record = record

    def _note(self, phase: str) -> None:
        self._feature.phases.append(phase)
        undecided = self._feature.undecided
        if phase == "request" and undecided is not None and not undecided.done():
            raise UndecidedError(REFUSAL, undecided)
        if phase in self._feature.refuses:
            raise REFUSAL

    def on_request(self, length: int, body: bytes, grows: bool) -> None:
        self._note("request")

    def on_request_body(self, piece: bytes) -> None:
        self._note("body")

    def on_model(self, model: str, body: Sequence[bytes]) -> None:
        self._note(f"model {model}")

    def on_upstream(self, upstream: str) -> None:
        self._note("upstream")

    def on_attempt_started(self, target: PlanTarget) -> PlanTarget:
        self._note("started")
        return target

    def on_attempt_ended(self, target: PlanTarget, outcome: str, status: int) -> None:
        self._note(f"ended {outcome} {status}")

    def on_response_head(self, content_coding: Callable[[], bytes]) -> PayloadSink | None:
        self._note(f"head {self._record.status} {content_coding().decode()}".rstrip())
        self._feature.payload = Payload()
        return self._feature.payload

    def on_closed(self, outcome: str, error: GatewayError | None) -> bool:
        self._note(f"closed {outcome}")
        return False


class Following(PassthroughFeature):
    """A feature that follows every exchange."""

    written_fields = frozenset((b"x-secret",))

    def __init__(self, *refuses: str) -> None:
        self.refuses = refuses
        self.undecided: asyncio.Future[None] | None = None  # while it is not known whether there is room
        self.phases: list[str] = []
        self.payload: Payload | None = None

    def choose_observer(self, request: PlannedRequest) -> ObserverFactory | None:
        return ObserverFactory(Follower, self)


async def test_an_exchange_has_its_phases_in_order() -> None:
    feature = Following()
    async with assembled(serve(build_answer(200, b"all")), further=[feature]) as lane, lane.client() as client:
        await client.send(POST)
        await lane.until_inflight(1)
        await client.send(b"{}")
        assert (await client.read_response()).payload == b"all"
    assert feature.phases == ["request", "started", "body", "closed ok"]


async def test_observer_reads_the_payload_without_framing() -> None:
    """The client gets the bytes as they came."""
    said = (
        build_head(200, [("Transfer-Encoding", "chunked"), ("Content-Encoding", "x")])
        + build_chunk(b"one")
        + build_chunk(b"two")
    )
    feature = Following()
    async with assembled(serve(said + b"0\r\n\r\n"), further=[feature, Following()]) as lane, lane.client() as client:
        await client.send(POST + b"{}")
        assert (await client.read_response()).payload == b"onetwo"
    assert feature.phases == ["request", "started", "head 200 x", "closed ok"]
    assert feature.payload is not None and feature.payload.data == b"onetwo"


@pytest.mark.parametrize("two", [True, False])
async def test_observer_refuses_a_request_before_sending(two: bool) -> None:
    """The client gets the observer's error, and each exchange closes once."""
    feature = Following("request")
    further = [Following(), feature] if two else [feature]
    async with assembled(serve(build_answer(200, b"")), further=further) as lane, lane.client() as client:
        await client.send(POST + b"{}")
        assert (await client.read_response()).status == 429
        assert not lane.upstream.requests
    assert feature.phases == ["request", "closed limited"]


async def test_observer_refuses_a_chunked_body_midway() -> None:
    feature = Following("body")
    async with assembled(serve(build_answer(200, b"")), further=[feature]) as lane, lane.client() as client:
        await client.send(CHUNKED)
        await lane.until_inflight(1)
        await client.send(b"2\r\n{}\r\n")
        assert (await client.read_response()).status == 429
    assert feature.phases == ["request", "started", "body", "closed limited"]


async def undecided(feature: Following) -> "asyncio.Future[None]":
    feature.undecided = asyncio.get_running_loop().create_future()
    return feature.undecided


@pytest.mark.parametrize(
    ("begun", "rest"),
    [
        (POST + b"{}", b""),
        (POST, b"{}"),
        (POST + b"{", b"}"),
        (CHUNKED + b"1\r\n{\r\n", b"1\r\n}\r\n0\r\n\r\n"),
    ],
)
async def test_request_waits_until_it_is_known_whether_there_is_room(begun: bytes, rest: bytes) -> None:
    """Its body may come meanwhile, and the next request too."""
    feature = Following()
    async with assembled(serve(build_answer(200, b"all")), further=[feature]) as lane, lane.client() as client:
        answered = await undecided(feature)
        await client.send(begun)
        await lane.until_inflight(1)
        await client.send(rest + POST + b"[]")
        await breathe(10)
        assert feature.phases == ["request"] and not lane.upstream.requests
        answered.set_result(None)
        assert [(await client.read_response()).payload for _ in range(2)] == [b"all", b"all"]
        assert [request.payload for request in lane.upstream.requests] == [b"{}", b"[]"]
    assert feature.phases[:3] == ["request", "request", "started"]


async def test_request_that_waited_is_refused() -> None:
    """There was no room in the end."""
    feature = Following("request")
    async with assembled(serve(build_answer(200, b"")), further=[feature]) as lane, lane.client() as client:
        answered = await undecided(feature)
        await client.send(POST + b"{}")
        await lane.until_inflight(1)
        answered.set_result(None)
        assert (await client.read_response()).status == 429
        assert not lane.upstream.requests
    assert feature.phases == ["request", "request", "closed limited"]


async def test_client_that_leaves_while_it_waits_is_forgotten() -> None:
    """Nothing of its request is sent."""
    feature = Following()
    async with assembled(serve(build_answer(200, b"")), further=[feature]) as lane:
        answered = await undecided(feature)
        async with lane.client() as client:
            await client.send(POST + b"{}")
            await lane.until_inflight(1)
        await lane.until_idle()
        answered.set_result(None)
        await breathe(10)
        assert not lane.upstream.requests
    assert feature.phases == ["request", "closed cancelled"]


async def test_long_body_is_not_read_while_its_request_waits() -> None:
    """The client is paused, and nothing of the body is lost."""
    feature, body = Following(), b"x" * (8 << 20)
    post = POST.replace(b"Length: 2", b"Length: %d" % len(body))
    async with assembled(serve(build_answer(200, b"all")), further=[feature]) as lane, lane.client() as client:
        answered = await undecided(feature)
        sending = asyncio.create_task(client.send(post + body))
        await lane.until_inflight(1)
        await breathe(50)
        assert not sending.done()
        answered.set_result(None)
        await sending
        assert (await client.read_response()).payload == b"all"
        (request,) = lane.upstream.requests
    assert request.payload == body


async def test_header_written_by_a_feature_replaces_the_clients() -> None:
    async with assembled(serve(build_answer(200, b"")), further=[Following()]) as lane, lane.client() as client:
        await client.send(POST.replace(b"\r\n\r\n", b"\r\nX-Secret: 1\r\nX-Other: 2\r\n\r\n{}"))
        await client.read_response()
        (request,) = lane.upstream.requests
    assert request.list_values(b"x-other") and not request.list_values(b"x-secret")


def test_phase_without_observers_is_skipped() -> None:
    """By the class of the observers, when the plan is made."""

    class Silent(Observer):
        def __init__(self, record: AccessRecord) -> None:
            self.record = record

    silent = Observers([ObserverFactory(Silent)])
    assert (silent.requested, silent.reading, silent.closing, silent.takes_attempts) == ((), (), (), False)
    mixed = Observers([ObserverFactory(Silent), ObserverFactory(Follower, Following())])
    assert (mixed.requested, mixed.reading, mixed.closing, mixed.takes_attempts) == ((1,), (1,), (1,), True)


async def test_failing_observer_leaves_the_exchange_counted_and_the_client_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At the end of an exchange: it is counted, its line is written, and the observers behind hear of it."""
    failing, behind = Following("closed ok"), Following()
    said = serve(build_answer(200, b"all"))
    async with assembled(said, further=[failing, behind]) as lane:
        async with lane.client() as client:
            for _ in range(2):
                await client.send(POST + b"{}")
                assert (await client.read_response()).payload == b"all"
        await lane.until_idle()
        assert len(lane.log) == 2 and lane.metrics.route("/v1/", "passthrough").count_codes("POST")[200] == 2
    assert behind.phases.count("closed ok") == 2
    assert "an observer failed at the end of an exchange" in caplog.text
