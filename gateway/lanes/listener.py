"""The state that all clients of a worker share: the configuration in use, who is connected, and the sweep."""

import asyncio
import logging
import os
import resource
import select
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping

from aiohttp.web import RequestHandler
from prometheus_client.core import GaugeMetricFamily, Metric

from gateway.auth.keyring import Key, get_peer_address
from gateway.contracts.errors import GatewayError
from gateway.contracts.tracing.tracer import Tracer
from gateway.http.request_head import RequestHead
from gateway.lanes.auth_failures import WrongKeys
from gateway.lanes.client import AccessLog, ClientTimeouts
from gateway.lanes.connection import ClientConnection
from gateway.lanes.passthrough.access_record import format_address
from gateway.lanes.passthrough.exchange import PassthroughExchange
from gateway.lanes.passthrough.tunnel import Tunnel
from gateway.lanes.router import Router
from gateway.lanes.upstream_metrics import build_gauges
from gateway.lanes.websocket import WebSocketTransaction
from gateway.telemetry.metrics import Metrics, build_counter

log = logging.getLogger("gateway")

#: Open files that are neither clients' nor their upstream connections': the store, tools, logs, what comes and goes.
SPARE_FILES = 32
#: So many clients beyond the limit still get an error; further connections are closed without an answer.
TOLD_AT_ONCE = 16
#: The log has at most one line about refused clients in this time.
REFUSED_LOG_S = 10.0
#: The period at which deadlines are checked: the latest that one strikes late. 10,000 connections cost 1.7 ms a second.
SWEEP_S = 0.5
#: The period of checks whether paused clients have left: while reading is paused a FIN is not delivered.
PAUSED_LOOK_S = 0.05
#: While draining, a connection is closed after this long without a request; until then a next request is answered with
#: `Connection: close`, so that a busy client is never cut between two requests.
DRAIN_IDLE_S = 1.0
#: How long clients whose answers end with the gateway may take to get that.
FAREWELL_S = 1.0


class Listener:
    """The shared state of a worker's client side. `listener.build_connection` is the protocol factory."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        router: Router,
        metrics: Metrics,
        new_handler: Callable[[], RequestHandler],
        wrong_keys: WrongKeys,
        access_log: AccessLog | None = None,
        beside: Callable[[], int] = int,
    ) -> None:
        """Set the services. `beside` returns the amount of other work that counts as requests."""
        self.loop = loop
        self.clock = loop.time
        self.router = router
        self.metrics = metrics
        self.new_handler = new_handler
        self.wrong_keys = wrong_keys
        self.access_log = access_log
        self._beside = beside
        self.connections: set[ClientConnection] = set()
        self.inner = 0  # of these, the console's to its own gateway
        self.paused: set[ClientConnection] = set()
        self.websockets: set[WebSocketTransaction] = set()
        self.inflight = 0
        self.listening = 0  # event streams of our own pages
        self.answering = 0  # turns of WebSockets under way
        self.draining = False
        self.has_ended = False
        self.refused_connections = 0
        self._refused_told_s: float | None = None
        self._by_files = _compute_client_limit()
        self._keys = router.keys.build_state()
        self._sweeper: asyncio.TimerHandle | None = None
        self._watcher: asyncio.TimerHandle | None = None

    def build_connection(self) -> ClientConnection:
        return ClientConnection(self)

    def build_inner_connection(self) -> ClientConnection:
        """Return the protocol of a connection that the console of this process opens: it takes no client's place."""
        return ClientConnection(self, is_inner=True)

    def start(self) -> None:
        """Begin the periodic sweep."""
        self._sweeper = self.loop.call_later(SWEEP_S, self._sweep, self.clock() + SWEEP_S)

    def watch_paused_client(self, connection: ClientConnection) -> None:
        """Watch a connection whose reading is paused, so that a client that leaves is noticed."""
        self.paused.add(connection)
        if self._watcher is None:
            self._watcher = self.loop.call_later(PAUSED_LOOK_S, self._abort_left_clients)

    @property
    def timeouts(self) -> ClientTimeouts:
        """Return the times that a client may take, by the configuration in use."""
        return self.router.timeouts

    @property
    def tracer(self) -> Tracer | None:
        """Return the maker of traces of the configuration in use; None: there is none."""
        return self.router.tracer

    def allows_key(self, key: Key, peer: str | None) -> bool:
        """Return whether a key with which a request began may still be used, from the address `peer`."""
        return self.router.keys.allows(key, peer)

    def get_cors_fields(self, head: RequestHead) -> Mapping[str, str]:
        """Return the header fields with which a page of another origin may read an answer of ours."""
        return self.router.door.get_cors_fields(head)

    @property
    def clients(self) -> int:
        """Return how many clients are connected."""
        return len(self.connections) - self.inner

    @property
    def most_connections(self) -> int:
        """Return how many clients are let in: `limits.connections`, or fewer where open files would not last for all.

        Each client may need a second file for its upstream; new clients are refused before requests of old ones fail.
        A connection of the console takes two files as well, one for each of its ends.
        """
        return min(self.router.limits.connections, max(self._by_files - self.inner, 1))

    def count_refused_client(self) -> bool:
        """Count a client too many, and log it now and then. Return whether it can still get an error."""
        self.refused_connections += 1
        now, most = self.clock(), self.most_connections
        if self._refused_told_s is None or now - self._refused_told_s > REFUSED_LOG_S:
            self._refused_told_s = now
            cause = (
                "limits.connections" if most == self.router.limits.connections else "the limit of open files (nofile)"
            )
            log.warning("clients are refused: %d connections are open, as many as %s allows", most, cause)
        return self.clients <= most + TOLD_AT_ONCE

    def swap_router(self, router: Router) -> None:
        """Use another configuration from the next request on; requests under way end on what they began with."""
        old, self.router = self.router, router
        old.close()

    @property
    def room(self) -> int | None:
        """Return how much more may begin; None: `limits.concurrent` does not bound it."""
        limit = self.router.limits.concurrent
        return None if limit is None else max(limit - self._under_way, 0)

    @property
    def full(self) -> bool:
        return self.room == 0

    def build_overload_error(self) -> GatewayError | None:
        """Return the error for a request beyond `limits.concurrent`; None: there is room for one more."""
        if not self.full:
            return None
        return GatewayError("overloaded", "Too many requests are under way; try again shortly.", retry_after_s=1)

    def admit_own(self) -> None:
        """Raise GatewayError, as `admit` does, for a transaction of our own that has begun and counts already."""
        limit = self.router.limits.concurrent
        if limit is not None and self._under_way > limit:
            raise GatewayError("overloaded", "Too many requests are under way; try again shortly.", retry_after_s=1)

    @property
    def _under_way(self) -> int:
        """Return the number that `limits.concurrent` bounds, without clients that listen, maybe for hours.

        These are WebSockets and event streams of the gateway's own pages. A WebSocket counts while it answers a
        message.
        """
        return self.inflight - len(self.websockets) - self.listening + self.answering + self._beside()

    @property
    def _modes(self) -> list[str]:
        """Return the modes of the requests under way."""
        return [one.transaction.mode for one in self.connections if one.transaction is not None]

    def record_end(self) -> None:
        """Count a transaction as ended; called once for each."""
        self.inflight -= 1

    def record_rejection(
        self, error: GatewayError, *, request_id: str, method: bytes, path: bytes, peer: object
    ) -> None:
        """Account for a request that was answered with an error before it had a transaction; `peer` is its client."""
        self.wrong_keys.record_refusal(error, peer=peer, method=method.decode(), path=path.decode("latin-1"))
        self.metrics.route("none", "none").count_codes(method.decode())[error.facts.status] += 1
        if self.access_log is not None:
            self.access_log(
                mode="none",
                method=method,
                path=path,
                status=error.facts.status,
                client=format_address(peer),
                error_code=error.code,
                request_id=request_id,
            )

    async def drain(self, limit_s: float, *, end_answers: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Wait until every connection is through, at most `limit_s`; then end what is left, visibly cut.

        A passthrough request without an answer gets an error that allows a retry. `end_answers` ends answers of the
        context lane with an error, and returns whether there were any. Their clients get it before that. WebSockets of
        the gateway's own pages are closed at once: they would never be through by themselves.
        """
        self.draining = True
        await self._wait_while(lambda: bool(self.connections), limit_s)
        told = {
            one
            for one in list(self.connections)
            if isinstance(turn := one.transaction, PassthroughExchange) and turn.stop()
        }
        if self.connections and end_answers is not None and await end_answers():
            await self._wait_while(lambda: "context" in self._modes, FAREWELL_S)
        await self._wait_while(lambda: not told.isdisjoint(self.connections), FAREWELL_S)
        self._abort()

    async def _wait_while(self, is_busy: Callable[[], bool], limit_s: float) -> None:
        """Wait while there is something to wait for, at most `limit_s`. Idle connections close meanwhile."""
        deadline = self.clock() + limit_s
        while self.clock() < deadline and is_busy():
            self._close_idle()
            for transaction in list(self.websockets):
                transaction.send_going_away()
            await asyncio.sleep(min(0.05, max(deadline - self.clock(), 0.0)))

    def stop(self) -> None:
        """End all connections at once, and all that are accepted later. Idempotent."""
        self.draining = self.has_ended = True
        for timer in (self._sweeper, self._watcher):
            if timer is not None:
                timer.cancel()
        self._abort()
        self.router.close()
        self.wrong_keys.close()

    def _abort(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    def collect_families(self) -> Iterator[Metric]:
        """Yield what is open right now, for a scrape."""
        connections = GaugeMetricFamily("gateway_client_connections", "Open client connections", value=self.clients)
        inflight = GaugeMetricFamily("gateway_inflight_requests", "Requests under way", labels=["mode"])
        modes = self._modes
        for mode in ("passthrough", "tunnel", "context", "own", "websocket"):
            inflight.add_metric([mode], modes.count(mode))
        streams = GaugeMetricFamily("gateway_open_streams", "Event streams under way")
        streams.add_metric([], sum(c.transaction is not None and c.transaction.streaming for c in self.connections))
        refused = build_counter(
            "gateway_client_connections_refused",
            "Client connections refused, too many being open",
            self.refused_connections,
        )
        yield from (connections, refused, inflight, streams)
        yield from build_gauges(self.router.groups)

    def _close_idle(self) -> None:
        now = self.clock()
        for connection in list(self.connections):
            connection.close_if_idle(now, DRAIN_IDLE_S)

    def _sweep(self, due: float) -> None:
        """Check the deadlines of all connections and upstreams; called every SWEEP_S seconds."""
        now = self.clock()
        self.metrics.loop_lag.observe(max(now - due, 0.0))
        for connection in list(self.connections):
            connection.sweep(now)
        for group in self.router.groups:
            group.sweep(now)
        self._end_revoked_tunnels()
        self.wrong_keys.sweep()
        self._sweeper = self.loop.call_later(SWEEP_S, self._sweep, now + SWEEP_S)

    def _end_revoked_tunnels(self) -> None:
        """End the tunnels whose keys are no longer valid. Answers under way are sent to their end."""
        keys = self.router.keys
        if (state := keys.build_state()) == self._keys:
            return
        self._keys = state
        for connection in list(self.connections):
            tunnel = connection.transaction
            if (
                isinstance(tunnel, Tunnel)
                and tunnel.key
                and not keys.allows(tunnel.key, get_peer_address(connection.transport))
            ):
                log.info("a tunnel ends: the key %r is not valid any more", tunnel.key.caller.name)
                connection.abort()

    def _abort_left_clients(self) -> None:
        """Abort the paused connections whose clients have left, and look again later."""
        self._watcher = None
        by_fd = {c.transport.get_extra_info("socket").fileno(): c for c in self.paused}
        poll = select.poll()
        for fd, connection in by_fd.items():
            # In a tunnel a FIN does not end the exchange, an RST does; poll(2) always reports errors.
            poll.register(fd, 0 if isinstance(connection.transaction, Tunnel) else select.POLLRDHUP)
        for fd, event in poll.poll(0):
            if event & (select.POLLRDHUP | select.POLLERR):
                by_fd[fd].transport.abort()
        if by_fd:
            self._watcher = self.loop.call_later(PAUSED_LOOK_S, self._abort_left_clients)


def _compute_client_limit() -> int:
    """Return how many clients the limit of open files allows, with two files for each client."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    in_use = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number matters
    return max((limit - in_use - SPARE_FILES) // 2, 1)
