"""The cost of a request of the context lane with many messages, or with many memories of its end user."""

import random
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

from bench.grown import Client, Grown, build_chat, build_turns, post, print_one_by_one, print_row
from bench.growth_runs import CHAT, build_config
from bench.model import ROUNDS, Model
from gateway.auth.keyring import LOCAL
from gateway.contracts.storage.store import get_memory_owner
from gateway.plugins.stores.sqlite import memory_statements as memories_sql
from gateway.plugins.stores.sqlite.file import open_file
from gateway.plugins.stores.sqlite.migrations import MIGRATIONS

USER, WORDS, LENGTH, REQUESTS = "ann", 20_000, 10, 200
MEMORIES_BAR_MS = 5.0
#: Of messages of a kilobyte.
LONG_REQUESTS = 10


def measure(folder: Path, *, memories: Sequence[int], messages: Sequence[int]) -> None:
    """Print the rows."""
    with Model() as model:
        for count in memories:
            _measure_memories(folder / f"memories{count}", model, count)
        for count in messages:
            _measure_messages(folder / f"messages{count}", model, count)


def _measure_messages(folder: Path, model: Model, count: int) -> None:
    """Measure requests with conversations of so many messages of 1 KB; each request has another one."""
    with Grown(folder, build_config(folder, model.port)) as gateway:
        bodies = [{"model": "bench", "messages": build_turns(count, number)} for number in range(LONG_REQUESTS + 1)]
        requests = [post(CHAT, body) for body in bodies]
        print_one_by_one(gateway, requests, what="a request with messages of 1 KB", size=f"{count} messages")


def _measure_memories(folder: Path, model: Model, count: int) -> None:
    chance = random.Random(count)
    grown = Grown(folder, build_config(folder, model.port))
    _fill(grown.store, count, chance)
    with grown as gateway, Client(gateway.port) as client:
        _measure_requests_ms(client, chance)
        with gateway.counted() as cost:
            took_ms = median(_measure_requests_ms(client, chance))
        with gateway.measured() as held:
            _measure_requests_ms(client, chance)
    if b"What you remember about this user" not in model.asked:
        raise SystemExit("bench: the model was told no memory")
    each_ms = cost.cpu_s / REQUESTS * 1e3
    figure = f"{each_ms:.2f} ms of CPU" + (" MISS" if each_ms > MEMORIES_BAR_MS else "") + f", {took_ms:.1f} ms"
    print_row("a request of a user with memories", f"{count} memories", figure, held.held)


def _measure_requests_ms(client: Client, chance: random.Random) -> list[float]:
    """Send requests one after the other, and return the time of each in milliseconds."""
    took_ms = []
    for _ in range(REQUESTS):
        request = post(CHAT, build_chat(f"{ROUNDS}0 {_build_text(chance)}?"), {"X-Context-User": USER})
        began_s = time.perf_counter()
        client.ask(request)
        took_ms.append((time.perf_counter() - began_s) * 1e3)
    return took_ms


def _fill(store: Path, count: int, chance: random.Random) -> None:
    """Store so many memories of one end user."""
    owner = get_memory_owner(user=USER, key="")
    with closing(open_file(str(store), migrations=MIGRATIONS)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for start in range(0, count, 1000):
            connection.execute("BEGIN IMMEDIATE")
            for number in range(start, min(start + 1000, count)):
                row = (f"mem_{number}", LOCAL.tenant, owner, None, _build_text(chance), time.time())
                memories_sql.remember(connection, row, limit=count)
            connection.execute("COMMIT")


def _build_text(chance: random.Random) -> str:
    """Return a text of random words: some words are in many texts, most in few."""
    return " ".join(f"word{int(WORDS ** chance.random())}" for _ in range(LENGTH))
