"""Errors of PostgreSQL and of the way to it, as the store raises them, with the next step."""

import asyncio
import ssl
from typing import Final

import asyncpg

from gateway.plugin import AskedAlreadyError, ConflictError, KeyTakenError, StoreError

from .text_codec import restore_text

#: What our functions raise: nothing was written.
_CONFLICTS: Final[dict[str, type[ConflictError]]] = {
    "TW001": ConflictError,
    "TW002": AskedAlreadyError,
    "TW003": KeyTakenError,
}
#: The transaction was undone, and the same call may succeed at once: serialization failure, deadlock, lock timeout, a
#: table that got a column while a function waited for it.
_REPEATABLE: Final = ("40001", "40P01", "55P03", "42804")
#: The server ends, or begins: admin_shutdown, crash_shutdown, cannot_connect_now.
_SHUTDOWN: Final = ("57P01", "57P02", "57P03")
_TOO_MANY: Final = "53300"
_NEXT_STEPS: Final = {
    "53100": "the disk of the database server is full: make room there",
    "53200": "the database server is out of memory",
    _TOO_MANY: "the database server has no connection left: lower `pool` in the URL of the store, or raise "
    "max_connections (gateways x workers x pool must fit)",
    "25006": "the database is read-only, as a standby is: name the primary in the URL of the store",
    "28000": "the database refuses the role: look at the URL of the store and at pg_hba.conf",
    "28P01": "the database refuses the password in the URL of the store",
    "3D000": "there is no such database: create it (createdb), or name another one in the URL of the store",
    "42501": "the role may not do this: grant it CREATE on the database (GRANT CREATE ON DATABASE ... TO ...), or let "
    "the role that owns the schema `twolane` start the gateway",
    "57014": "the database cancelled the statement",
    "58030": "the database server cannot write to its disk",
}
#: The way to the server is broken, or too slow; the outcome of what was sent is unknown.
_LOST: Final = (OSError, EOFError, asyncio.TimeoutError, asyncpg.PostgresConnectionError, asyncpg.InternalClientError)


def is_lost(error: BaseException) -> bool:
    """Return whether the connection is gone, so that a statement on it may have been carried out or not."""
    if isinstance(error, asyncpg.PostgresError) and error.sqlstate in _SHUTDOWN:
        return True
    return isinstance(error, _LOST)


def is_away(error: BaseException) -> bool:
    """Return whether the server cannot be reached, or takes no connection now. A refused certificate stays refused."""
    if isinstance(error, asyncpg.PostgresError) and error.sqlstate == _TOO_MANY:
        return True
    return is_lost(error) and not isinstance(error, ssl.SSLError)


def is_repeatable(error: BaseException) -> bool:
    """Return whether nothing has happened, and the same call may succeed at once."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _REPEATABLE


def build_error(code: str, message: str) -> Exception:
    """Return the error of the store for an error of the server, by its code (SQLSTATE)."""
    text = restore_text(message)
    if (conflict := _CONFLICTS.get(code)) is not None:
        return conflict(text)
    step = _NEXT_STEPS.get(code)
    return StoreError(f"PostgreSQL: {text} ({code})" + ("" if step is None else f"; {step}"))


def translate_error(error: BaseException) -> Exception:
    """Return the error that the caller of the store gets, where surely nothing has changed."""
    if isinstance(error, asyncpg.PostgresError):
        return build_error(error.sqlstate, str(error))
    return StoreError(f"PostgreSQL: {str(error) or type(error).__name__}")
