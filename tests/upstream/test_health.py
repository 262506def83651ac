"""Active health checks take an endpoint out that fails, and bring it back."""

import asyncio

import pytest
from gateways import until

from gateway.contracts.model_apis import ApiName
from gateway.telemetry.metrics import UpstreamTally
from gateway.testing.clock import ManualClock
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer
from gateway.testing.upstream import FakeUpstream
from gateway.upstream.endpoint import Endpoint, ModelAccess
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group
from gateway.upstream.health import HealthChecks, HealthRules, build_check_request
from gateway.upstream.pool import Pool

RULES = HealthRules(path=b"/ping", interval_s=10.0, timeout_s=30.0, fall=2, rise=2)


class Checked:
    """A group of one endpoint, whose status is `status`; None: it never answers."""

    def __init__(self) -> None:
        self.status: int | None = 200
        self.clock = ManualClock()

    async def script(self, peer: Peer) -> None:
        while True:
            await peer.read_request(timeout_s=None)
            if self.status is None:
                await peer.wait_end(timeout_s=None)
            await peer.send(build_answer(self.status or 200))

    def watch(self, port: int, rules: HealthRules = RULES) -> Group:
        endpoint = Endpoint(name="up", host="127.0.0.1", port=port, authority=b"a", base_path=b"/x/v1", api_key=b"k")
        member = Member(Pool(endpoint, clock=self.clock), name="a")
        self.group = Group("up", [member], tally=UpstreamTally(), clock=self.clock)
        self.group.checks = self.checks = HealthChecks(self.group, rules)
        return self.group

    async def check(self) -> bool:
        """One check; whether the endpoint is in use after it."""
        self.clock.advance(RULES.interval_s)
        self.group.sweep(self.clock())
        await until(lambda: not self.checks._checking)
        return self.group.members[0].healthy


async def test_health_checks_eject_and_restore_an_endpoint_after_consecutive_results() -> None:
    """In a row; an answer below 500 is a good one."""
    checked = Checked()
    async with FakeUpstream(checked.script) as upstream:
        group = checked.watch(upstream.port)
        seen = []
        for status in (200, 500, 404, 500, 503, 401, 500, 200, 200):
            checked.status = status
            seen.append(await checked.check())
        assert seen == [True, True, True, True, False, False, False, False, True]
        assert group.tally.ejections == {("a", "health"): 1}
        request = upstream.requests[0]
        assert request.target == b"/x/v1/ping" and request.list_values(b"authorization") == [b"Bearer k"]
        assert len(upstream.connections) == 1, "its connection is used again"
        group.close()


async def test_unanswered_health_check_fails() -> None:
    """And one that nobody can connect to."""
    checked = Checked()
    async with FakeUpstream(checked.script) as upstream:
        checked.watch(upstream.port, HealthRules(timeout_s=0.01, fall=1))
        checked.status = None
        assert not await checked.check()
        checked.group.close()
    checked = Checked()
    checked.watch(1, HealthRules(fall=1))
    assert not await checked.check()
    checked.group.close()


async def test_health_check_is_due_only_after_its_interval() -> None:
    """And a closed group has none under way."""
    checked = Checked()
    checked.status = None
    async with FakeUpstream(checked.script) as upstream:
        group = checked.watch(upstream.port)
        group.sweep(0.0)
        await upstream.wait_requests(1)
        group.sweep(5.0)
        group.close()
        await asyncio.sleep(0)
        await until(lambda: not checked.checks._checking)
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(("status", "api_key"), [(401, b"k"), (403, b"k"), (404, None)])
async def test_refused_health_check_fails_only_if_another_endpoint_is_healthy(
    status: int, api_key: bytes | None
) -> None:
    """Where none is, it says only that the server is at work: it may know no such page, and the key no right to it."""
    one, other = Checked(), Checked()
    one.status = status
    async with FakeUpstream(one.script) as first, FakeUpstream(other.script) as second:
        endpoints = [
            Endpoint(name="up", host="127.0.0.1", port=port, authority=b"a", api_key=api_key)
            for port in (first.port, second.port)
        ]
        clock = one.clock
        members = [Member(Pool(each, clock=clock), name=name) for name, each in zip("ab", endpoints, strict=True)]
        one.group = Group("up", members, tally=UpstreamTally(), clock=clock)
        one.checks = HealthChecks(one.group, RULES)
        one.group.checks = one.checks
        for _ in range(4):
            await one.check()
        assert not members[0].healthy and members[1].healthy
        other.status = status
        for _ in range(4):
            await one.check()
        assert members[0].healthy and members[1].healthy
        one.group.close()


async def test_health_check_without_a_key_accepts_an_unauthorized_answer() -> None:
    """The gateway has none to send."""
    one, other = Checked(), Checked()
    one.status = 401
    async with FakeUpstream(one.script) as first, FakeUpstream(other.script) as second:
        members = [
            Member(Pool(Endpoint(name="up", host="127.0.0.1", port=up.port, authority=b"a"), clock=one.clock), name="x")
            for up in (first, second)
        ]
        one.group = Group("up", members, tally=UpstreamTally(), clock=one.clock)
        one.checks = HealthChecks(one.group, RULES)
        one.group.checks = one.checks
        for _ in range(4):
            await one.check()
        assert all(member.healthy for member in members)
        one.group.close()


@pytest.mark.parametrize(
    ("api", "lines"),
    [
        ("chat", b"Authorization: Bearer k\r\n"),
        ("messages", b"X-Api-Key: k\r\nAnthropic-Version: 2023-06-01\r\n"),
    ],
)
def test_health_check_carries_the_key_as_the_api_wants_it(api: ApiName, lines: bytes) -> None:
    endpoint = Endpoint(name="up", host="h", port=1, authority=b"a", api_key=b"k", models=ModelAccess(api=api))
    request = b"GET /v1/models HTTP/1.1\r\nHost: a\r\n" + lines + b"Accept: application/json\r\n\r\n"
    assert build_check_request(endpoint, b"/models") == request
