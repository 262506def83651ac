"""The interface of every database of `execute_sql`: one statement, with values, and its result."""

from dataclasses import dataclass
from typing import Protocol

from .rows import SqlRows


class StatementError(Exception):
    """A statement that failed, or cannot run. The text is for the model and ends without a full stop."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement. `params` are bound to it in their order, never pasted.

    `harmless`: it was let through as one that only reads, so it fails where it would do anything else.
    """

    sql: str
    params: tuple[object, ...] = ()
    harmless: bool = False


@dataclass(frozen=True, slots=True)
class EngineDoubt:
    """The reason why an engine does not consider a statement harmless: the rule's name, and a sentence for a person."""

    rule: str
    reason: str


class Engine(Protocol):
    """One database. Each statement has a separate connection, and only its committed changes remain."""

    async def run(self, statement: Statement, table: SqlRows) -> None:
        """Fill `table`. Raises StatementError. After the end of this method, the statement changes nothing any more."""
        ...

    async def find_refusal(self, statement: Statement) -> str | None:
        """Return why `run` would refuse it, as far as that can be determined without running it."""
        ...

    async def find_doubt(self, statement: Statement) -> EngineDoubt | None:
        """Return why the database itself does not consider the statement harmless. None: it does.

        Also None where the statement cannot be compiled now: `run` looks again, and fails a harmless statement that is
        not. Raises StatementError where the database cannot be reached.
        """
        ...

    async def close(self) -> None:
        """Close the engine. Idempotent."""
        ...
