"""What every database of `execute_sql` is asked: one statement, with values, and what came of it."""

from dataclasses import dataclass
from typing import Protocol

from .rows import SqlRows


class StatementError(Exception):
    """A statement that failed, or cannot run. The text is for the model and ends without a full stop."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement; `params` are bound to it in their order, never pasted.

    `harmless`: it was let through as one that only reads, so it fails where it would do anything else.
    """

    sql: str
    params: tuple[object, ...] = ()
    harmless: bool = False


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why an engine does not hold a statement harmless: the rule's name, and a sentence for a person."""

    rule: str
    reason: str


class Engine(Protocol):
    """One database. Each statement has a connection of its own, and nothing of it stays but what it committed."""

    async def run(self, statement: Statement, table: SqlRows) -> None:
        """Fills `table`; raises StatementError. Once it has ended, the statement changes nothing any more."""
        ...

    async def refused(self, statement: Statement) -> str | None:
        """Why `run` would not run it, as far as that can be told without running it."""
        ...

    async def doubt(self, statement: Statement) -> Doubt | None:
        """Returns why the database itself does not hold the statement harmless; None: it does.

        Also None where the statement cannot be compiled now: `run` looks again, and fails a harmless statement that is
        not. Raises StatementError where the database cannot be asked.
        """
        ...

    async def close(self) -> None:
        """Idempotent."""
        ...
