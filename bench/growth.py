"""Measures what grows: `make bench-growth`, or `python -m bench.growth --quick`.

Each line is one figure beside the size that it was taken at; a cost that grows faster than its size is a defect.
CPU is of all processes of the gateway, which does not depend on what else the machine does; times by the clock do.
`held`: the longest CPU time for which anything held the event loop of a worker (`bench.probe`); MISS: over its bar.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench import (
    growth_console,
    growth_features,
    growth_mcp,
    growth_requests,
    growth_responses,
    growth_runs,
    growth_store,
    growth_traffic,
)

#: Each subject with its sizes.
_SUBJECTS: Final[Mapping[str, tuple[Callable[..., None], Mapping[str, Any]]]] = {
    "store": (growth_store.measure, {"runs": [1000, 10_000, 50_000], "megabytes": [70, 700]}),
    "traffic": (
        growth_traffic.measure,
        {"requests": 20_000, "keys": [1, 256, 7000], "upstreams": [1, 200], "workers": [1, 2, 4], "scraped": 80},
    ),
    "runs": (
        growth_runs.measure,
        {"recovered": [1000, 5000], "listeners": [0, 100, 500], "finished": [10, 100]},
    ),
    "requests": (
        growth_requests.measure,
        {"memories": [1000, 10_000, 100_000], "messages": [10, 1000, 10_000]},
    ),
    "responses": (
        growth_responses.measure,
        {"items": [10, 1000, 10_000], "megabytes": [1, 10]},
    ),
    "mcp": (growth_mcp.measure, {"tools": [20, 200], "services": 20, "clients": 100, "calls": 1000, "rounds": 30}),
    "features": (growth_features.measure, {"rounds": 60, "seconds": 0.25, "requests": 100}),
    "console": (
        growth_console.measure,
        {"runs": 1_000_000, "requests": 200, "inboxes": 200, "seconds": 30.0, "starts": 10},
    ),
}
#: Whether everything works.
_QUICK: Final[Mapping[str, Mapping[str, Any]]] = {
    "store": {"runs": [500], "megabytes": [20]},
    "traffic": {"requests": 2000, "keys": [1, 500], "upstreams": [1, 20], "workers": [1, 2], "scraped": 20},
    "runs": {"recovered": [100], "listeners": [0, 20], "finished": [2]},
    "requests": {"memories": [500], "messages": [10, 100]},
    "responses": {"items": [10, 100], "megabytes": [1]},
    "mcp": {"tools": [20], "services": 3, "clients": 5, "calls": 20, "rounds": 2},
    "features": {"rounds": 2, "seconds": 0.1, "requests": 16, "pairs": 1},
    "console": {"runs": 10_000, "requests": 16, "inboxes": 20, "seconds": 3.0, "starts": 1},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line names. The stores are created in `TMPDIR`."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument(
        "--subjects", nargs="+", choices=list(_SUBJECTS), default=list(_SUBJECTS), help="all by default"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--runs", type=int, nargs="+", help="of the subject store, instead of its sizes")
    parser.add_argument("--megabytes", type=int, nargs="+", help="of the subject store, instead of its sizes")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: terminated"))  # what was started ends with this
    own = {"runs": given.runs, "megabytes": given.megabytes}
    print("| what | size | cost | held |\n|---|---|---|---|")
    for name in given.subjects:
        measure, sizes = _SUBJECTS[name]
        sizes = {**sizes, **(_QUICK[name] if given.quick else {})}
        if name == "store":
            sizes = {**sizes, **{size: value for size, value in own.items() if value}}
        with tempfile.TemporaryDirectory(prefix="growth-") as folder:
            measure(Path(folder), **sizes)


if __name__ == "__main__":
    main()
