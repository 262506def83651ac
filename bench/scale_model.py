"""The model of gateways in zones on one PostgreSQL: what they ask of it, and at which stations they wait.

The costs are those that `bench.fleet`, `bench.store_calls` and `bench.stores` printed (docs/scale.md).
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from bench.simulation import BatchStation, Process, Simulation, Station

Place = Literal["none", "postgresql", "valkey"]

#: The intervals of the gateway's own code: looks at the store, sealing, renewals, and shares of limits.
LOOK_S, SEAL_S, RENEW_S, BEAT_S = 0.2, 1.0, 1.25, 0.25
LEASE_S, AT_ONCE, TAKE_PAUSE_S = 5.0, 20, 0.02
SEALED_AT_ONCE, EVENTS_AT_ONCE = 500, 500
#: A call has two round trips.
ROUND_TRIPS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The costs in seconds of CPU. An approval is so many `writes` and `reads`, with `gateway_s` spread over them."""

    writes: int = 12
    reads: int = 14
    write_s: float = 1.3e-3
    read_s: float = 0.3e-3
    gateway_s: float = 23.5e-3
    looks: int = 4
    look_s: float = 0.42e-3
    gateway_look_s: float = 0.45e-3
    events: float = 5.6
    lines: float = 3.7
    event_s: float = 10e-6
    read_event_s: float = 3.5e-6
    gateway_event_s: float = 9e-6
    line_s: float = 60e-6
    gateway_line_s: float = 23e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCosts:
    """The costs of a call about shares of limits: of the server, for the call and for each of its limits."""

    postgresql_s: float = 1.2e-3
    valkey_s: float = 0.3e-3
    limit_s: float = 0.1e-3
    limits: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The gateways, the zones and the database. A model takes `model_s` for each of the two answers of an approval."""

    replicas: int = 50
    zones: int = 3
    workers: int = 1
    pool: int = 4
    cores: int = 16
    flush_s: float = 1e-3
    zone_rtt_s: float = 0.2e-3
    cross_rtt_s: float = 1.0e-3
    pooled: int = 0
    shares: Place = "postgresql"
    follows: bool = False
    model_s: float = 0.0
    lost_at_s: float | None = None


class ModelGateway:
    """A gateway: its event loops, and its connections to the database."""

    def __init__(self, simulation: Simulation, fleet: Fleet, number: int) -> None:
        self.zone = number % fleet.zones
        self.rtt_s = fleet.zone_rtt_s if self.zone == 0 else fleet.cross_rtt_s
        self.loop = Station(simulation, "event loops", fleet.workers)
        self.pool = Station(simulation, "pools of connections", fleet.workers * fleet.pool)
        self.is_lost = False
        self.lease_ends_s = 0.0
        self.has_written = False
        self.seen_events = 0
        self.driven = 0


@dataclass(slots=True)
class ModelRun:
    """An approval under way: the calls that are left, which write or read."""

    began_s: float
    calls: deque[bool]


@dataclass(slots=True)
class Outcome:
    """The approvals that ended, how long each took, and the course of those whose gateway was lost."""

    took_s: list[float] = field(default_factory=list)
    began: int = 0
    orphans: int = 0
    last_taken_s: float | None = None


class ScaleModel:
    """All processes of a fleet at one load."""

    def __init__(self, fleet: Fleet, rate: float, *, seed: int, costs: Costs, share_costs: ShareCosts) -> None:
        self.simulation = Simulation(seed)
        self.outcome = Outcome()
        self._fleet, self._costs, self._share_costs, self._rate = fleet, costs, share_costs, rate
        self._order = self._list_calls()
        self.cores = Station(self.simulation, "cores of PostgreSQL", fleet.cores)
        self.log = BatchStation(self.simulation, "flushes of the log", flush_s=fleet.flush_s)
        self.pooler = Station(self.simulation, "connections behind PgBouncer", fleet.pooled or 1_000_000)
        self.numbering = Station(self.simulation, "the lock that numbers events")
        self.limit = Station(self.simulation, "the row of a limit that all use")
        self.valkey = Station(self.simulation, "Valkey")
        self.gateways = [ModelGateway(self.simulation, fleet, number) for number in range(fleet.replicas)]
        self._events = self._numbered = self._unsealed = self._seals = 0.0
        self._orphans: deque[tuple[float, ModelRun]] = deque()

    def run(self, seconds: float, *, warm_s: float = 1.0) -> None:
        """Let the fleet work, and count behind the time in which it warms up."""
        self.simulation.start(self._arrive())
        for gateway in self.gateways:
            for process in self._list_background(gateway):
                self.simulation.start(process)
        if self._fleet.lost_at_s is not None:
            self.simulation.schedule(warm_s + self._fleet.lost_at_s, self._lose_zone)
        self.simulation.run(warm_s)
        for station in (self.log, *self.list_stations()):
            station.clear_counts()
        self.outcome.took_s.clear()
        self.outcome.began = 0
        self.simulation.run(warm_s + seconds)

    def list_stations(self) -> list[Station]:
        """Return the stations; those that each gateway has stand behind the others."""
        shared = [self.cores, self.pooler, self.numbering, self.limit, self.valkey]
        return [*shared, *(gateway.loop for gateway in self.gateways), *(gateway.pool for gateway in self.gateways)]

    def _list_calls(self) -> list[bool]:
        """Return the calls of an approval: whether each writes, the writes spread evenly."""
        count = self._costs.writes + self._costs.reads
        return [(at + 1) * self._costs.writes // count > at * self._costs.writes // count for at in range(count)]

    def _arrive(self) -> Process:
        chance = self.simulation.chance
        while True:
            yield self.simulation.pause(chance.expovariate(self._rate))
            self.outcome.began += 1
            run = ModelRun(self.simulation.now_s, deque(self._order))
            self.simulation.start(self._drive(self._choose_gateway(), run))

    def _choose_gateway(self) -> ModelGateway:
        gateway = self.gateways[self.simulation.chance.randrange(len(self.gateways))]
        while gateway.is_lost:
            gateway = self.gateways[self.simulation.chance.randrange(len(self.gateways))]
        return gateway

    def _drive(self, gateway: ModelGateway, run: ModelRun) -> Process:
        """Drive a run to its end. A gateway that is lost leaves it to another one."""
        costs, gateway_s = self._costs, self._costs.gateway_s / len(self._order)
        gateway.driven += 1
        answers = {len(self._order) // 4 * part for part in (3, 1)}
        while run.calls:
            if self._fleet.model_s and len(run.calls) in answers:
                yield self.simulation.pause(self._vary(self._fleet.model_s))
            yield gateway.loop.serve(self._vary(gateway_s))
            writes = run.calls[0]
            yield from self._call(gateway, costs.write_s if writes else costs.read_s, writes=writes)
            if gateway.is_lost:
                self.outcome.orphans += 1
                self._orphans.append((gateway.lease_ends_s, run))
                return
            run.calls.popleft()
            if writes:
                gateway.has_written = True
                self._events += costs.events / costs.writes
                self._unsealed += costs.lines / costs.writes
        gateway.driven -= 1
        self.outcome.took_s.append(self.simulation.now_s - run.began_s)

    def _call(
        self, gateway: ModelGateway, cpu_s: float, *, writes: bool = False, lock: Station | None = None
    ) -> Process:
        """Call the database, on a connection of the gateway. A lock is held until the commit is durable."""
        yield gateway.pool.acquire()
        yield self.simulation.pause(ROUND_TRIPS * gateway.rtt_s)
        yield self.pooler.acquire()
        if lock is not None:
            yield lock.acquire()
        yield self.cores.serve(self._vary(cpu_s))
        if writes:
            yield self.log.flush()
        if lock is not None:
            lock.release()
        self.pooler.release()
        gateway.pool.release()

    def _vary(self, service_s: float) -> float:
        """Return a time around the mean: most calls take about as long, and some far longer."""
        return service_s * self.simulation.chance.gammavariate(2.0, 0.5)

    def _list_background(self, gateway: ModelGateway) -> Iterator[Process]:
        yield self._look(gateway)
        yield self._seal(gateway)
        yield self._renew(gateway)
        if self._fleet.follows:
            yield self._follow(gateway)
        if self._fleet.shares != "none":
            yield self._share(gateway)

    def _look(self, gateway: ModelGateway) -> Process:
        """Look for what others changed: prompts, servers, approvals that expired."""
        costs = self._costs
        yield self.simulation.pause(self.simulation.chance.uniform(0, LOOK_S))
        while not gateway.is_lost:
            for _ in range(costs.looks):
                yield gateway.loop.serve(costs.gateway_look_s)
                yield from self._call(gateway, costs.look_s)
            yield self.simulation.pause(LOOK_S)

    def _follow(self, gateway: ModelGateway) -> Process:
        """Read all events, at intervals and behind each write of the gateway's own."""
        costs = self._costs
        yield self.simulation.pause(self.simulation.chance.uniform(0, LOOK_S))
        while not gateway.is_lost:
            gateway.has_written = False
            if (new := int(self._events - self._numbered)) > 0:
                self._numbered += new
                yield from self._call(gateway, new * costs.event_s, writes=True, lock=self.numbering)
            count = min(int(self._numbered) - gateway.seen_events, EVENTS_AT_ONCE)
            gateway.seen_events += count
            yield from self._call(gateway, costs.look_s + count * costs.read_event_s)
            yield gateway.loop.serve(costs.gateway_look_s + count * costs.gateway_event_s)
            if count < EVENTS_AT_ONCE and not gateway.has_written:
                yield self.simulation.pause(LOOK_S)

    def _seal(self, gateway: ModelGateway) -> Process:
        """Seal audit lines. What another gateway has sealed meanwhile was in vain, and is tried again."""
        costs = self._costs
        yield self.simulation.pause(self.simulation.chance.uniform(0, SEAL_S))
        while not gateway.is_lost:
            seals, count = self._seals, min(int(self._unsealed), SEALED_AT_ONCE)
            yield from self._call(gateway, costs.look_s + count * costs.read_event_s)
            if count:
                yield gateway.loop.serve(count * costs.gateway_line_s)
                is_first = seals == self._seals
                yield from self._call(gateway, costs.look_s + is_first * count * costs.line_s, writes=is_first)
                is_first = seals == self._seals
                if is_first:
                    self._seals += 1
                    self._unsealed -= count
                if not is_first or count == SEALED_AT_ONCE:
                    continue
            yield self.simulation.pause(SEAL_S)

    def _renew(self, gateway: ModelGateway) -> Process:
        """Renew the leases of the runs that are driven, and take up those whose gateway is lost."""
        yield self.simulation.pause(self.simulation.chance.uniform(0, RENEW_S))
        while not gateway.is_lost:
            if gateway.driven:
                yield from self._call(gateway, self._costs.write_s)
            while taken := self._take_orphans():
                yield from self._call(gateway, len(taken) * self._costs.write_s, writes=True)
                for run in taken:
                    self.outcome.last_taken_s = self.simulation.now_s
                    self.simulation.start(self._drive(gateway, run))
                yield self.simulation.pause(TAKE_PAUSE_S)
            yield self.simulation.pause(RENEW_S)

    def _take_orphans(self) -> list[ModelRun]:
        """Return the next runs whose lease is over."""
        over = [entry for entry in self._orphans if entry[0] <= self.simulation.now_s][:AT_ONCE]
        for entry in over:
            self._orphans.remove(entry)
        return [run for _, run in over]

    def _share(self, gateway: ModelGateway) -> Process:
        """Call the place of shares while a limit that all gateways use is scarce: four times a second."""
        costs = self._share_costs
        yield self.simulation.pause(self.simulation.chance.uniform(0, BEAT_S))
        while not gateway.is_lost:
            if self._fleet.shares == "valkey":
                yield self.simulation.pause(gateway.rtt_s)
                yield self.valkey.serve(self._vary(costs.valkey_s + costs.limits * costs.limit_s))
            else:
                cpu_s = costs.postgresql_s + costs.limits * costs.limit_s
                yield from self._call(gateway, cpu_s, writes=True, lock=self.limit)
            yield self.simulation.pause(BEAT_S)

    def _lose_zone(self) -> None:
        """Lose the last zone: its gateways answer nothing any more."""
        for gateway in self.gateways:
            if gateway.zone == self._fleet.zones - 1:
                gateway.is_lost = True
                left_s = self.simulation.chance.uniform(LEASE_S - RENEW_S, LEASE_S)
                gateway.lease_ends_s = self.simulation.now_s + left_s


def build_local_fleet(gateways: int, *, cores: int) -> Fleet:
    """Return the fleet that `bench.fleet` measures: on one machine, without limits, its disk not waited for."""
    near = Fleet(replicas=gateways, zones=1, cores=cores, flush_s=0.05e-3, shares="none")
    return replace(near, zone_rtt_s=0.05e-3, cross_rtt_s=0.05e-3)
