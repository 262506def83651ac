"""The lane put together by hand around a scripted upstream: a listener, its pool, and pages of the test's making."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from gateways import until

from gateway.auth.host_guard import HostGuard
from gateway.auth.keyring import Key, KeyRing
from gateway.contracts.caller import Caller
from gateway.features.limits.observer import LimitFeature
from gateway.features.usage.observer import UsageFeature
from gateway.features.usage.observer_batch import UsageBatch
from gateway.http.request_head import RequestHead, parse_request_head
from gateway.lanes.aiohttp_adapter import restore_connection_header
from gateway.lanes.auth_failures import WrongKeys
from gateway.lanes.client import ClientTimeouts
from gateway.lanes.listener import Listener
from gateway.lanes.passthrough.observers.observer import PassthroughFeature
from gateway.lanes.router import AcceptLimits, Router
from gateway.lanes.routes import Route
from gateway.limits.limiter import Limiter
from gateway.telemetry.metrics import Metrics, UpstreamTally
from gateway.testing.clock import ManualClock
from gateway.testing.raw_connection import PendingConnection, connect
from gateway.testing.upstream import FakeUpstream, Script
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group
from gateway.upstream.pool import Pool
from gateway.usage.tokens import Recorded

HOST = "127.0.0.1"
#: Names under which tests ask.
TEST_HOSTS = ("h", "gw", "a", "g", "u", "gx", "x", "e", "demo", "gw.example", "up.example")


@dataclass(frozen=True)
class From:
    """The transport of a connection, as far as a router asks it."""

    address: str = HOST

    def get_extra_info(self, name: str, default: object = None) -> object:
        return (self.address, 1) if name == "peername" else default


HERE = From()


def endpoint(port: int = 1, **more: object) -> Endpoint:
    facts: dict[str, object] = {"name": "up", "host": HOST, "port": port, "authority": b"up.example", **more}
    return Endpoint(**facts)  # type: ignore[arg-type]


def keyring(*texts: str, scopes: Sequence[str] = ("passthrough",)) -> KeyRing:
    return KeyRing(Key(hashlib.sha256(t.encode()).digest(), Caller(t, t, frozenset(scopes))) for t in texts)


def router(
    *endpoints: Endpoint,
    keys: KeyRing | None = None,
    recorded: Recorded | None = None,
    usage_batch: UsageBatch | None = None,
    limiter: Limiter | None = None,
    further: Sequence[PassthroughFeature] = (),
    **more: object,
) -> Router:
    """An entry for `/v1/` and its endpoint, or for `/v1/`, `/v2/` and so on. `further` are features of the test."""
    batch = usage_batch or UsageBatch()
    facts: dict[str, object] = {
        "features": (UsageFeature(recorded, batch), *(() if limiter is None else (LimitFeature(limiter),)), *further),
        "routes": [Route(b"/v%d/" % (i + 1), i) for i in range(len(endpoints))],
        "groups": [alone(Pool(one, clock=ManualClock())) for one in endpoints],
        "keys": keys or KeyRing(()),
        "metrics": Metrics(),
        "door": HostGuard.from_hosts(TEST_HOSTS),
        "own_paths": (b"/own",),
        "limits": AcceptLimits(),
        "timeouts": ClientTimeouts(),
        **more,
    }
    return Router(**facts)  # type: ignore[arg-type]


def alone(pool: Pool, tally: UpstreamTally | None = None) -> Group:
    """An upstream with this one endpoint, and no rules."""
    name = pool.endpoint.name
    return Group(name, [Member(pool, name=name)], tally=tally or UpstreamTally(), clock=ManualClock())


def read(raw: bytes) -> RequestHead:
    return parse_request_head(raw, AcceptLimits().head)


@dataclass
class Lane:
    """What a test looks at."""

    listener: Listener
    upstream: FakeUpstream
    pool: Pool
    metrics: Metrics
    port: int = 0
    log: list[dict[str, object]] = field(default_factory=list)
    usage_batch: UsageBatch = field(default_factory=UsageBatch)

    def client(self, **options: int) -> PendingConnection:
        return connect(HOST, self.port, **options)  # type: ignore[arg-type]

    def later(self, seconds: float) -> None:
        """As if the sweep came by now, and again when `seconds` have passed."""
        for now in (self.listener.clock(), self.listener.clock() + seconds):
            for connection in list(self.listener.connections):
                connection.sweep(now)
            for group in self.listener.router.groups:
                group.sweep(now)

    async def until_inflight(self, count: int) -> None:
        await until(lambda: self.listener.inflight == count)

    async def until_idle(self) -> None:
        """And all that ended is recorded."""
        await until(lambda: not (self.listener.connections or self.listener.inflight))
        self.usage_batch.read()


@asynccontextmanager
async def assembled(
    *scripts: Script,
    pages: web.Application | None = None,
    own_paths: Sequence[bytes] = (b"/own",),
    limits: AcceptLimits | None = None,
    timeouts: ClientTimeouts | None = None,
    keys: KeyRing | None = None,
    rcvbuf: int | None = None,
    recorded: Recorded | None = None,
    further: Sequence[PassthroughFeature] = (),
    **facts: object,
) -> AsyncIterator[Lane]:
    """`facts` are the endpoint's. The once-a-second sweep does not run: `Lane.later` is the clock."""
    loop = asyncio.get_running_loop()
    app = pages or web.Application()
    if restore_connection_header not in app.on_response_prepare:  # a Site has it already
        app.on_response_prepare.append(restore_connection_header)
    runner = web.AppRunner(app, access_log=None, auto_decompress=False, handler_cancellation=True, keepalive_timeout=0)
    await runner.setup()
    assert runner.server is not None
    async with FakeUpstream(*scripts, rcvbuf=rcvbuf) as upstream:
        metrics, batch = Metrics(), UsageBatch()
        metrics.late.append(batch.read)
        pool = Pool(endpoint(upstream.port, **facts), clock=loop.time)
        way_in = router(
            pool.endpoint,
            groups=[alone(pool, metrics.get_upstream(pool.endpoint.name))],
            keys=keys,
            metrics=metrics,
            own_paths=own_paths,
            limits=limits or AcceptLimits(),
            timeouts=timeouts or ClientTimeouts(),
            recorded=recorded,
            usage_batch=batch,
            further=further,
        )
        listener = Listener(
            loop=loop, router=way_in, metrics=metrics, new_handler=runner.server, wrong_keys=WrongKeys(clock=loop.time)
        )
        lane = Lane(listener, upstream, pool, metrics, usage_batch=batch)
        listener.access_log = lambda **facts: lane.log.append(facts)
        server = await loop.create_server(listener.build_connection, HOST, 0)
        lane.port = server.sockets[0].getsockname()[1]
        try:
            yield lane
        finally:
            server.close()
            listener.stop()
            batch.read()
            await runner.cleanup()
