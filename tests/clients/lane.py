"""The context lane that clients are tested against, and what its tools have done."""

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NOTE: Final = "Two lanes on one base URL."
KEEPALIVE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Lane:
    """The context lane of a gateway with two tools; `root` is the base URL without `/v1`.

    `key` is that of the people who decide, where the gateway has keys.
    """

    root: str
    database: Path
    key: str | None = None

    def insertion(self, name: str) -> str:
        """The words for a call that writes; of each round, something else."""
        statement = json.dumps({"sql": f"INSERT INTO log VALUES ('{name}', $step)"})
        return f"risk_level low, tool execute_sql {statement}"

    def count(self, name: str) -> int:
        """How often that call was executed."""
        with closing(sqlite3.connect(self.database)) as database:
            [[count]] = database.execute("SELECT count(*) FROM log WHERE name = ?", (name,))
        return int(count)

    @contextmanager
    def locked(self, seconds: float) -> Iterator[None]:
        """The tool waits so long for its database."""
        with closing(sqlite3.connect(self.database, isolation_level=None, check_same_thread=False)) as database:
            database.execute("BEGIN EXCLUSIVE")
            timer = threading.Timer(seconds, database.execute, ("ROLLBACK",))
            timer.start()
            try:
                yield
            finally:
                timer.join()


def shop(folder: Path) -> Path:
    """A new database with something to read and something to write."""
    path = folder / "shop.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE fruit (name, price); INSERT INTO fruit VALUES ('apple', 3), ('fig', 7);"
            "CREATE TABLE log (name, round)"
        )
    return path


def configuration(provider_url: str, *, tools: Mapping[str, object], keepalive_s: float) -> str:
    """Of a gateway whose context lane has these tools."""
    return json.dumps(
        {
            "upstreams": [{"name": "provider", "base_url": f"{provider_url}/v1"}],
            "tools": tools,
            "context": {"stream": {"keepalive": keepalive_s, "status_wait": keepalive_s}},
            "store": "sqlite:///:memory:",
        }
    )
