"""The load at which a fleet on one PostgreSQL breaks, and what breaks first: a simulation with measured costs.

    python -m bench.scale                                   # 50 gateways, three zones, 100 to 1,000 approvals a second
    python -m bench.scale --cores 32 --shares valkey --rates 500 1000 1500
    python -m bench.scale --rates 400 --lose-zone 2 --seconds 12
    python -m bench.scale --svg docs/images/scale.svg

An approval is a question and its decision, from the chat to the end of the run. docs/scale.md explains the result, and
`bench.fleet` measures the same on a machine. The same seed gives the same result.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.scale_model import Costs, Fleet, ScaleModel, ShareCosts
from bench.simulation import Station

RATES: Final = (100.0, 200.0, 400.0, 600.0, 800.0, 1000.0)
#: A station is full from here on: those who wait become ever more.
FULL: Final = 0.95
_COLOURS: Final = ("#3f51b5", "#e65100", "#2e7d32", "#6a1b9a", "#00838f", "#c62828", "#795548", "#546e7a")


@dataclass(frozen=True, slots=True)
class StationLoad:
    """The load of a station, or the highest of those that each gateway has one of."""

    name: str
    utilisation: float
    wait_s: float
    slowest_s: float


@dataclass(frozen=True, slots=True)
class RateResult:
    """The results at one rate: approvals that ended a second, the times of the median and the slowest, and stations."""

    rate: float
    ended: float
    median_s: float
    slowest_s: float
    stations: tuple[StationLoad, ...]
    flush_commits: float
    orphans: int
    recovered_s: float | None

    @property
    def fullest(self) -> StationLoad:
        return max(self.stations, key=lambda station: station.utilisation)


def simulate(
    fleet: Fleet, rate: float, *, seconds: float, seed: int, costs: Costs, share_costs: ShareCosts
) -> RateResult:
    """Return the result at one rate."""
    model = ScaleModel(fleet, rate, seed=seed, costs=costs, share_costs=share_costs)
    model.run(seconds)
    took_s = sorted(model.outcome.took_s)
    taken_s = model.outcome.last_taken_s
    return RateResult(
        rate=rate,
        ended=len(took_s) / seconds,
        median_s=_find_part(took_s, 0.5),
        slowest_s=_find_part(took_s, 0.99),
        stations=tuple(_join_stations(model.list_stations())),
        flush_commits=model.log.counts.left / max(model.log.flushes, 1),
        orphans=model.outcome.orphans,
        recovered_s=None if taken_s is None or fleet.lost_at_s is None else taken_s - fleet.lost_at_s - 1.0,
    )


def _find_part(took_s: Sequence[float], part: float) -> float:
    return took_s[min(int(part * len(took_s)), len(took_s) - 1)] if took_s else float("nan")


def _join_stations(stations: Sequence[Station]) -> list[StationLoad]:
    """Return the loads of the stations that were used: one for all gateways' of a kind, which is the mean."""
    by_name: dict[str, list[Station]] = {}
    for station in stations:
        if station.counts.came and station.servers < 1_000_000:
            by_name.setdefault(station.name, []).append(station)
    return [
        StationLoad(
            name,
            sum(one.measure_utilisation() for one in found) / len(found),
            sum(one.measure_mean_wait_s() for one in found) / len(found),
            max(one.find_wait_s(0.99) for one in found),
        )
        for name, found in by_name.items()
    ]


def find_capacity(results: Sequence[RateResult], name: str) -> float | None:
    """Return the rate at which a station would be full, by the line through its first and its last rate below."""
    loads = [
        (result.rate, station.utilisation)
        for result in results
        for station in result.stations
        if station.name == name and station.utilisation < FULL and result.ended > 0.9 * result.rate
    ]
    if len(loads) < 2 or loads[-1][1] - loads[0][1] < 0.01:
        return None
    slope = (loads[-1][1] - loads[0][1]) / (loads[-1][0] - loads[0][0])
    return loads[0][0] + (1 - loads[0][1]) / slope


def describe(results: Sequence[RateResult]) -> list[str]:
    """Return the lines of the table, and of what is full first."""
    lines = [
        "| approvals/s | ended/s | median | 99 % | fullest | its load | it lets wait, 99 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        fullest = result.fullest
        lines.append(
            f"| {result.rate:,.0f} | {result.ended:,.0f} | {1000 * result.median_s:,.0f} ms | "
            f"{1000 * result.slowest_s:,.0f} ms | {fullest.name} | {fullest.utilisation:.0%} | "
            f"{1000 * fullest.slowest_s:,.1f} ms |"
        )
    lines += ["", "| station | " + " | ".join(f"{result.rate:,.0f}/s" for result in results) + " | full at |"]
    lines.append("|---|" + "---|" * (len(results) + 1))
    for name in _list_names(results):
        parts = [f"{_get_load(result, name):.0%}" for result in results]
        capacity = find_capacity(results, name)
        full = "-" if capacity is None else f"{capacity:,.0f}/s"
        lines.append(f"| {name} | " + " | ".join(parts) + f" | {full} |")
    commits = (f"{result.flush_commits:.1f}" for result in results)
    lines.append(f"| commits of one flush | {' | '.join(commits)} | - |")
    for result in results:
        if result.recovered_s is not None:
            lines.append(
                f"\n{result.rate:,.0f}/s: a zone was lost with {result.orphans} runs; the last was taken up after "
                f"{result.recovered_s:.1f} s"
            )
    return lines


def _list_names(results: Sequence[RateResult]) -> list[str]:
    return list(dict.fromkeys(station.name for result in results for station in result.stations))


def _get_load(result: RateResult, name: str) -> float:
    return next((station.utilisation for station in result.stations if station.name == name), 0.0)


def draw(results: Sequence[RateResult]) -> str:
    """Return a picture (SVG): the load of each station by the rate."""
    width, height, left, top = 640, 320, 50, 20
    most = max(result.rate for result in results)

    def format_place(rate: float, load: float) -> str:
        return f"{left + (width - left - 20) * rate / most:.1f},{top + (height - top - 40) * (1 - min(load, 1.0)):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 22 * len(_list_names(results))}" '
        'font-family="sans-serif" font-size="12"><title>Load of each station by approvals a second</title>'
        '<rect width="100%" height="100%" fill="#ffffff"/>'
    ]
    for tenths in range(0, 11, 2):
        x, y = format_place(0, tenths / 10).split(",")
        parts.append(f'<line x1="{x}" y1="{y}" x2="{width - 20}" y2="{y}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 8}" y="{float(y) + 4}" text-anchor="end">{tenths * 10} %</text>')
    for result in results:
        x = format_place(result.rate, 0).partition(",")[0]
        parts.append(f'<text x="{x}" y="{height - 20}" text-anchor="middle">{result.rate:,.0f}/s</text>')
    for at, name in enumerate(_list_names(results)):
        colour, y = _COLOURS[at % len(_COLOURS)], height + 22 * at
        points = " ".join(format_place(result.rate, _get_load(result, name)) for result in results)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<rect x="{left}" y="{y}" width="20" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{left + 28}" y="{y + 7}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    fleet = Fleet()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES), help="approvals a second")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each rate, behind one in which it warms up")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=fleet.replicas)
    parser.add_argument("--zones", type=int, default=fleet.zones)
    parser.add_argument("--workers", type=int, default=fleet.workers, help="of each gateway")
    parser.add_argument("--pool", type=int, default=fleet.pool, help="connections of each worker")
    parser.add_argument("--pooled", type=int, default=fleet.pooled, help="connections of PgBouncer; 0: there is none")
    parser.add_argument("--cores", type=int, default=fleet.cores, help="of the database")
    parser.add_argument("--flush-ms", type=float, default=1000 * fleet.flush_s, help="until a commit is on the disk")
    parser.add_argument("--cross-ms", type=float, default=1000 * fleet.cross_rtt_s, help="round trip between zones")
    parser.add_argument("--shares", choices=("none", "postgresql", "valkey"), default=fleet.shares)
    parser.add_argument("--limits", type=int, default=ShareCosts().limits, help="in each call about shares")
    parser.add_argument("--follow", action="store_true", help="each gateway follows all events, for streams and pages")
    parser.add_argument("--model", type=float, default=fleet.model_s, metavar="S", help="a model takes for an answer")
    parser.add_argument("--lose-zone", type=float, metavar="S", help="lose a zone after so many seconds")
    parser.add_argument("--svg", type=Path, help="write a picture to this file")
    return parser.parse_args(words)


def build_fleet(args: argparse.Namespace) -> Fleet:
    return Fleet(
        replicas=args.replicas,
        zones=args.zones,
        workers=args.workers,
        pool=args.pool,
        cores=args.cores,
        flush_s=args.flush_ms / 1000,
        cross_rtt_s=args.cross_ms / 1000,
        pooled=args.pooled,
        shares=args.shares,
        follows=args.follow,
        model_s=args.model,
        lost_at_s=args.lose_zone,
    )


def main() -> None:
    args = parse_arguments()
    fleet, share_costs = build_fleet(args), ShareCosts(limits=args.limits)
    results = [
        simulate(fleet, rate, seconds=args.seconds, seed=args.seed, costs=Costs(), share_costs=share_costs)
        for rate in sorted(args.rates)
    ]
    print("\n".join(describe(results)))
    if args.svg is not None:
        args.svg.write_text(draw(results))


if __name__ == "__main__":
    main()
