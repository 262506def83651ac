"""The simulation of a fleet: what it predicts for a machine on which it was measured, and what breaks first."""

from dataclasses import replace

import pytest

from bench.scale import RateResult, build_fleet, describe, draw, find_capacity, parse_arguments, simulate
from bench.scale_model import Costs, Fleet, ShareCosts, build_local_fleet

SMALL = Fleet(replicas=6, cores=2, shares="none")
#: `python -m bench.fleet URL --gateways 3`: approvals a second, cores of the server, cores of the gateways.
MEASURED = [(1.49, 0.0607, 0.0664), (5.15, 0.1294, 0.1513), (7.82, 0.1840, 0.2418), (10.92, 0.2693, 0.3494)]
#: A prediction is within this factor of what was measured (docs/scale.md).
FACTOR = 1.35


def run(fleet: Fleet, rate: float, *, seconds: float = 3.0, seed: int = 1) -> RateResult:
    return simulate(fleet, rate, seconds=seconds, seed=seed, costs=Costs(), share_costs=ShareCosts())


def load_of(result: RateResult, name: str) -> float:
    return next(station.utilisation for station in result.stations if station.name == name)


@pytest.mark.parametrize(("rate", "server", "gateways"), MEASURED)
def test_prediction_is_near_what_was_measured(rate: float, server: float, gateways: float) -> None:
    """The costs come from one gateway; these are three."""
    result = run(build_local_fleet(3, cores=2), rate, seconds=40.0)
    predicted = 2 * load_of(result, "cores of PostgreSQL"), 3 * load_of(result, "event loops")
    for value, measured in zip(predicted, (server, gateways), strict=True):
        assert measured / FACTOR < value < measured * FACTOR


def test_database_is_full_first() -> None:
    """Beyond, fewer approvals end than begin, and each takes far longer."""
    results = [run(SMALL, rate) for rate in (20.0, 40.0, 60.0, 130.0)]
    costs = Costs()
    expected = 2 / (costs.writes * costs.write_s + costs.reads * costs.read_s)
    assert find_capacity(results, "cores of PostgreSQL") == pytest.approx(expected, rel=0.15)
    assert results[0].ended == pytest.approx(20, rel=0.3)
    assert results[-1].fullest.utilisation == pytest.approx(1, abs=0.02)
    assert results[-1].ended < 120 and results[-1].slowest_s > 3 * results[0].slowest_s
    assert "cores of PostgreSQL" in "\n".join(describe(results))
    assert draw(results).count("<polyline") == 3


def test_seed_decides_the_result() -> None:
    assert run(SMALL, 30.0) == run(SMALL, 30.0) != run(SMALL, 30.0, seed=2)


@pytest.mark.parametrize(
    ("change", "name", "without"),
    [
        ({"shares": "postgresql"}, "the row of a limit that all use", "Valkey"),
        ({"shares": "valkey"}, "Valkey", "the row of a limit that all use"),
        ({"follows": True}, "the lock that numbers events", "Valkey"),
        ({"pooled": 5}, "connections behind PgBouncer", "Valkey"),
    ],
)
def test_parts_of_a_fleet_are_stations(change: dict[str, object], name: str, without: str) -> None:
    result = run(replace(SMALL, **change), 30.0)  # type: ignore[arg-type]
    assert load_of(result, name) > 0 and without not in {station.name for station in result.stations}


def test_runs_of_a_lost_zone_are_taken_up() -> None:
    """Once their leases are over: between 4 and 8 seconds later."""
    result = run(replace(SMALL, lost_at_s=1.0, model_s=1.0), 30.0, seconds=14.0)
    assert result.orphans > 5 and result.recovered_s is not None and 4 < result.recovered_s < 8
    assert "a zone was lost with" in "\n".join(describe([result]))


def test_arguments_describe_a_fleet() -> None:
    args = parse_arguments(["--replicas", "9", "--cores", "4", "--flush-ms", "2", "--follow", "--shares", "valkey"])
    assert build_fleet(args) == Fleet(replicas=9, cores=4, flush_s=2e-3, follows=True, shares="valkey")
