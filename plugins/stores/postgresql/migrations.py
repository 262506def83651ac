"""The schema of the store in the database, as the steps that create it.

1. All steps are one transaction, under a lock of the transaction. Gateways that start together wait for each other. One
   that would wait for long for a table in use begins again: gateways at work would wait behind it.
2. A step only adds: gateways of the version before it go on with the schema. `compatible_from` names the oldest
   version that can. A released step is never changed; a new one is added behind it.
3. A schema that is newer than this program is accepted if its `compatible_from` allows it.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg

from gateway.plugin import StoreAwayError, StoreError

from .failures import is_away, is_repeatable, translate_error
from .pool import PostgresqlConnection, connect

log = logging.getLogger("gateway")

FOLDER: Final = Path(__file__).parent / "sql"
#: "Twol": the lock of those that change the schema.
_LOCK: Final = 0x54776F6C
#: So long a start waits for the server, and for others that change the schema.
OPEN_S: Final = 30.0
#: So long the change of a table waits for those who use it, and the others behind it; the pause before it begins again.
TABLE_MS: Final = 1000
PAUSE_S: Final = 0.2


def read_script(name: str, *, folder: Path = FOLDER) -> str:
    return (folder / f"{name}.sql").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """One version of the schema: the files of `sql/` that make it from the version before."""

    version: int
    compatible_from: int
    files: Sequence[str]
    folder: Path = FOLDER

    def read_scripts(self) -> str:
        return "\n".join(read_script(name, folder=self.folder) for name in self.files)


_FIRST: Final = (
    *("base", "events", "audit", "runs", "grants", "approvals", "pruning"),
    *("general", "responses", "hidden_turns", "usage", "memories", "keys", "quota"),
)
SCHEMA: Sequence[SchemaStep] = (
    SchemaStep(1, compatible_from=1, files=_FIRST),
    SchemaStep(2, compatible_from=1, files=("replicas",)),
)

#: Not by a name: the server looks names up in a cache that may be older than the lock.
_FIND_TABLE: Final = """SELECT EXISTS (SELECT FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'twolane' AND c.relname = 'schema_versions'),
    current_setting('server_encoding')"""
_FIND_VERSION: Final = """SELECT version, (SELECT max(compatible_from) FROM twolane.schema_versions)
    FROM twolane.schema_versions ORDER BY version DESC LIMIT 1"""


async def migrate(url: str, *, schema: Sequence[SchemaStep] = SCHEMA) -> None:
    """Bring the schema to its last version. Raises StoreError if this program cannot use it; StoreAwayError."""
    try:
        async with asyncio.timeout(OPEN_S):
            while True:
                if await _try_to_migrate(url, schema):
                    return
                await asyncio.sleep(PAUSE_S)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        translated = translate_error(error)
        raise (StoreAwayError(str(translated)) if is_away(error) else translated) from error


async def _try_to_migrate(url: str, schema: Sequence[SchemaStep]) -> bool:
    """Return whether the schema has its last version; False: a table was in use for too long, and nothing changed."""
    connection = await connect(url)
    try:
        await _migrate(connection, schema)
    except asyncpg.PostgresError as error:
        if not is_repeatable(error):
            raise
        log.info("a change of the schema waits for those who use a table: %s", error)
        return False
    finally:
        connection.terminate()
    return True


async def _migrate(connection: PostgresqlConnection, schema: Sequence[SchemaStep]) -> None:
    known = schema[-1].version
    if (await _read_version(connection, known)) >= known:
        return
    await connection.execute(f"BEGIN; SELECT pg_advisory_xact_lock({_LOCK}); SET LOCAL lock_timeout = {TABLE_MS}")
    found = await _read_version(connection, known)
    for step in schema:
        if step.version > found:
            added = f"INSERT INTO twolane.schema_versions VALUES ({step.version}, {step.compatible_from})"  # noqa: S608
            await connection.execute(f"{step.read_scripts()};\n{added}")
    await connection.execute("COMMIT")


async def _read_version(connection: PostgresqlConnection, known: int) -> int:
    """Return the version of the schema, 0 if there is none. Raises StoreError if it is too new for this program."""
    version, compatible_from = await read_versions(connection)
    if (problem := find_schema_problem(version, compatible_from, known=known)) is not None:
        raise StoreError(problem)
    return version


async def read_versions(connection: PostgresqlConnection) -> tuple[int, int]:
    """Return the version of the schema, and the oldest one of programs that can use it. Raises StoreError.

    Both are 0 if there is no schema.
    """
    ((is_there, encoding),) = await connection.fetch(_FIND_TABLE)
    if encoding != "UTF8":
        raise StoreError(f"the database has the encoding {encoding}: create it with UTF8 (createdb --encoding UTF8)")
    if not is_there:
        return 0, 0
    ((version, compatible_from),) = await connection.fetch(_FIND_VERSION)
    return int(version), int(compatible_from)


def find_schema_problem(version: int, compatible_from: int, *, known: int) -> str | None:
    """Return why a program that knows the version `known` cannot use a schema; None: it can."""
    if compatible_from <= known:
        return None
    return (
        f"the store has version {version} of its schema, which gateways can use from version {compatible_from} on, "
        f"and this one knows version {known}: start a newer gateway"
    )
