"""The cost of an approval to gateways on one PostgreSQL, and to the server: CPU, calls, transactions, and waiting.

    python -m bench.fleet postgresql://owner@127.0.0.1/postgres --gateways 3 --rates 0 2 5

An approval is a question and its decision at another gateway: a chat that asks for one write, `GET` and `POST` of the
approval, and the run to its end. They begin at random times, so many a second. The server runs on this machine, the
role is a superuser's, and the database is empty before; it is not emptied afterwards. `bench.scale` takes its costs
from here.
"""

import argparse
import asyncio
import os
import random
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import aiohttp
import asyncpg

from bench import kernel
from bench.grown import Grown, Json, chat
from bench.model import WRITES, Model

CHAT: Final = "/context/v1/chat/completions"
APPROVAL: Final = re.compile(r"ap_[a-z2-7]{26}")
ENDED: Final = frozenset(("completed", "rejected", "failed", "interrupted", "cancelled", "expired", "unknown"))
#: A client looks at its run so often.
LOOK_S: Final = 0.5
_CALLS: Final = """SELECT funcname, calls FROM pg_stat_user_functions WHERE schemaname = 'twolane'"""
_COMMITS: Final = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
_CONNECTIONS: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
_FUNCTIONS: Final = "ALTER DATABASE {} SET track_functions = 'all'"


@dataclass(frozen=True, slots=True)
class Spent:
    """The sums until a moment: seconds of CPU, transactions, and calls of the store's functions."""

    at_s: float
    gateways_s: float
    server_s: float
    commits: int
    calls: dict[str, int]


class DatabaseServer:
    """The server of a database, on this machine."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._root = 0

    async def prepare(self) -> None:
        """Find its processes, and count the calls of functions from now on."""
        connection = await asyncpg.connect(self._url)
        backend = await connection.fetchval("SELECT pg_backend_pid()")
        name = await connection.fetchval("SELECT quote_ident(current_database())")
        await connection.execute(_FUNCTIONS.format(name))
        await connection.close()
        self._root = int((kernel.PROC / str(backend) / "stat").read_text().rpartition(")")[2].split()[1])

    @property
    def processes(self) -> list[int]:
        return kernel.process_family(self._root)

    async def read(self, gateways: Sequence[Grown]) -> Spent:
        connection = await asyncpg.connect(self._url)
        calls = {row[0]: row[1] for row in await connection.fetch(_CALLS)}
        commits = await connection.fetchval(_COMMITS)
        await connection.close()
        return Spent(
            at_s=time.monotonic(),
            gateways_s=sum(gateway.cpu_s() for gateway in gateways),
            server_s=kernel.cpu_s(self.processes),
            commits=commits,
            calls=calls,
        )

    async def count_connections(self) -> int:
        connection = await asyncpg.connect(self._url)
        found: int = await connection.fetchval(_CONNECTIONS)
        await connection.close()
        return found - 1


class ApprovalLoad:
    """Clients that ask, decide and wait for the end of their runs."""

    def __init__(self, session: aiohttp.ClientSession, gateways: Sequence[Grown]) -> None:
        self._session = session
        self._urls = [f"http://127.0.0.1:{gateway.port}" for gateway in gateways]
        self._chance = random.Random(1)
        self._number = 0
        self.took_s: list[float] = []

    async def drive(self, rate: float, *, seconds: float) -> None:
        """Begin approvals at this rate, and wait for all of them."""
        tasks, ends_s = [], time.monotonic() + seconds
        while rate and time.monotonic() < ends_s:
            tasks.append(asyncio.create_task(self._approve()))
            await asyncio.sleep(self._chance.expovariate(rate))
        await asyncio.gather(*tasks)
        await asyncio.sleep(max(ends_s - time.monotonic(), 0.0))

    async def _approve(self) -> None:
        self._number += 1
        began_s = time.monotonic()
        answer = await self._call("POST", CHAT, chat(f"{WRITES}1 {self._number}"))
        found = APPROVAL.search(answer["choices"][0]["message"]["content"])
        if found is None:
            raise SystemExit(f"bench: the gateway did not ask: {answer}")
        path = f"/context/approvals/{found[0]}"
        approval = await self._call("GET", path)
        await self._call("POST", path, {"decision": "approve", "sha256": approval["sha256"]})
        while True:
            run = await self._call("GET", f"/context/runs/{approval['run_id']}")
            if run["state"] in ENDED:
                break
            await asyncio.sleep(LOOK_S)
        self.took_s.append(time.monotonic() - began_s)

    async def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        url = self._chance.choice(self._urls) + path
        async with self._session.request(method, url, json=body) as response:
            found: Json = await response.json()
            if response.status != 200:
                raise SystemExit(f"bench: {method} {path}: {response.status} {found}")
            return found


@contextmanager
def start_gateways(folder: Path, url: str, count: int) -> Iterator[list[Grown]]:
    """Start gateways on one store whose tool writes files, and a model that asks for them."""
    with ExitStack() as stack:
        model = stack.enter_context(Model())
        (folder / "files").mkdir()
        config = {
            "store": url,
            "upstreams": [{"name": "model", "base_url": f"http://127.0.0.1:{model.port}/v1"}],
            "tools": {"file_operations": {"roots": [str(folder / "files")], "write": True}},
        }
        yield [stack.enter_context(Grown(folder / f"gateway{number}", config)) for number in range(count)]


async def measure(url: str, *, gateways: int, rates: Sequence[float], seconds: float, calls: bool) -> None:
    """Print a row for each rate."""
    server = DatabaseServer(url)
    await server.prepare()
    with TemporaryDirectory() as folder, start_gateways(Path(folder), url, gateways) as started:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            load = ApprovalLoad(session, started)
            await load.drive(1.0, seconds=2.0)  # warms up
            print(f"{gateways} gateways, {await server.count_connections()} connections of theirs")
            for rate in rates:
                load.took_s.clear()
                before = await server.read(started)
                await load.drive(rate, seconds=seconds)
                after = await server.read(started)
                _print_row(rate, load.took_s, before, after)
                if calls:
                    _print_calls(len(load.took_s), before, after)


def _print_row(rate: float, took_s: Sequence[float], before: Spent, after: Spent) -> None:
    passed_s, done = after.at_s - before.at_s, len(took_s)
    server, gateways = after.server_s - before.server_s, after.gateways_s - before.gateways_s
    median = f"{1000 * sorted(took_s)[done // 2]:.0f} ms" if done else "-"
    print(
        f"rate {rate:>5.1f}: {done / passed_s:>6.2f} approvals/s, server {server / passed_s:.4f} cores, gateways "
        f"{gateways / passed_s:.4f} cores, {(after.commits - before.commits) / passed_s:.1f} transactions/s, "
        f"median {median}"
    )


def _print_calls(done: int, before: Spent, after: Spent) -> None:
    passed_s = after.at_s - before.at_s
    for name, count in sorted(after.calls.items()):
        if more := count - before.calls.get(name, 0):
            each = f", {more / done:.2f} for each approval" if done else ""
            print(f"    {name:<24} {more / passed_s:.2f} calls/s{each}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", metavar="URL")
    parser.add_argument("--gateways", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.0, 2.0, 5.0], help="approvals a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each rate")
    parser.add_argument("--calls", action="store_true", help="list the calls of the store's functions")
    args = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}")
    asyncio.run(measure(args.url, gateways=args.gateways, rates=args.rates, seconds=args.seconds, calls=args.calls))


if __name__ == "__main__":
    main()
