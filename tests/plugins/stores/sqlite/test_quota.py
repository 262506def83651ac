"""The shares of limits in a file: what a call costs where there are many, and what is deleted."""

import sqlite3

from gateway.contracts.storage.quota import ShareRequest
from gateway.plugins.stores.sqlite.quota import FORGOTTEN_S, share_quota


def want(name: str, wanted: int) -> ShareRequest:
    return ShareRequest(name=name, limit=100, held=0, used=0, wanted=wanted, needed=0, lapse_s=61.0)


def count_steps(connection: sqlite3.Connection, requests: list[ShareRequest], *, turn: int) -> int:
    """How many hundreds of instructions of SQLite a call takes."""
    steps = 0

    def note() -> None:
        nonlocal steps
        steps += 1

    connection.set_progress_handler(note, 100)
    share_quota(connection, gateway="one", requests=requests, turn=turn, now_s=1000.0)
    connection.set_progress_handler(None, 0)
    return steps


def test_call_looks_only_at_its_own_limits(connection: sqlite3.Connection) -> None:
    """However many others there are, of which nobody lacks any."""
    few = count_steps(connection, [want("key 0", 5)], turn=1)
    many = [want(f"key {number}", 5) for number in range(2000)]
    for gateway in ("one", "other"):
        share_quota(connection, gateway=gateway, requests=many, turn=2, now_s=1000.0)
    assert count_steps(connection, [want("key 0", 5)], turn=3) <= few + 2


def test_rows_of_gateways_that_are_gone_are_deleted(connection: sqlite3.Connection) -> None:
    """Once none of their shares count."""
    share_quota(connection, gateway="gone", requests=[want("key", 5)], turn=1, now_s=1000.0)
    share_quota(connection, gateway="one", requests=[want("key", 5)], turn=1, now_s=1000.0 + FORGOTTEN_S + 1)
    assert connection.execute("SELECT gateway FROM quota_shares").fetchall() == [("one",)]
    assert connection.execute("SELECT gateway FROM quota_gateways").fetchall() == [("one",)]
