"""The simulation of discrete events, held against queues whose waiting times are known."""

import pytest

from bench.simulation import BatchStation, Process, Simulation, Station


def drive_queue(*, rate: float, service_s: float, is_exponential: bool, seconds: float, servers: int = 1) -> Station:
    """Return a station that customers came to at random times."""
    simulation = Simulation(seed=7)
    station = Station(simulation, "queue", servers)
    chance = simulation.chance

    def come() -> Process:
        yield station.serve(chance.expovariate(1 / service_s) if is_exponential else service_s)

    def arrive() -> Process:
        while True:
            yield simulation.pause(chance.expovariate(rate))
            simulation.start(come())

    simulation.start(arrive())
    simulation.run(seconds)
    return station


@pytest.mark.parametrize(("is_exponential", "factor"), [(True, 1.0), (False, 0.5)])
def test_queues_wait_as_long_as_the_formulas_say(is_exponential: bool, factor: float) -> None:
    """M/M/1 waits for load / (1 - load) services, M/D/1 for half of that (Pollaczek and Khinchine)."""
    station = drive_queue(rate=70.0, service_s=0.01, is_exponential=is_exponential, seconds=600)
    assert station.measure_utilisation() == pytest.approx(0.7, rel=0.02)
    assert station.measure_mean_wait_s() == pytest.approx(factor * 0.7 / 0.3 * 0.01, rel=0.1)
    assert station.find_wait_s(0.5) < station.measure_mean_wait_s() < station.find_wait_s(0.99)


def test_little_s_law_holds() -> None:
    """The mean number of those present is the rate times the mean time for which they stay."""
    station = drive_queue(rate=70.0, service_s=0.04, is_exponential=True, seconds=300, servers=4)
    rate = station.counts.came / 300
    assert station.measure_presence() == pytest.approx(rate * (station.measure_mean_wait_s() + 0.04), rel=0.03)


def test_overload_grows_the_queue() -> None:
    station = drive_queue(rate=150.0, service_s=0.01, is_exponential=False, seconds=100)
    assert station.measure_utilisation() == pytest.approx(1.0, abs=0.01)
    assert station.queue_length == pytest.approx(5000, rel=0.1)


def test_seed_decides_the_course() -> None:
    first, second = (
        drive_queue(rate=70.0, service_s=0.01, is_exponential=True, seconds=20).counts.waited_s for _ in range(2)
    )
    assert first == second


def test_counts_begin_anew() -> None:
    """So a course can warm up."""
    station = drive_queue(rate=70.0, service_s=0.01, is_exponential=True, seconds=20)
    station.clear_counts()
    assert station.measure_utilisation() == station.measure_presence() == station.find_wait_s(0.99) == 0.0


def test_flush_takes_all_that_came_before_it() -> None:
    """A commit that comes during a flush waits for the next one, together with the others."""
    simulation = Simulation(seed=1)
    log, ended_s = BatchStation(simulation, "log", flush_s=1.0), []

    def commit(pause_s: float) -> Process:
        yield simulation.pause(pause_s)
        yield log.flush()
        ended_s.append(simulation.now_s)

    for pause_s in (0.0, 0.2, 0.9, 2.5):
        simulation.start(commit(pause_s))
    simulation.run(10)
    assert ended_s == [1.0, 2.0, 2.0, 3.5] and log.flushes == 3 and log.counts.left == 4
