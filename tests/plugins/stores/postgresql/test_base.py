"""The parts that the methods of the PostgreSQL store share."""

import pytest

from gateway.contracts.storage.journal import RunEvent
from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.postgresql.base import PostgresqlBase, list_json, to_json
from gateway.plugins.stores.postgresql.rows import PostgresqlRows
from tests.plugins.stores.records import event


def test_records_become_one_json_parameter() -> None:
    rows = PostgresqlRows(RunEvent)
    assert list_json(rows, []) is None
    data = '"\\\\x7b2273746570223a317d"'
    one = f'{{"tenant":"acme","run_id":"run_1","type":"step.started","data":{data},"created_s":100.0,"seq":0}}'
    assert list_json(rows, [event(), event()]) == f"[{one},{one}]"


def test_text_without_unicode_is_a_store_error() -> None:
    with pytest.raises(StoreError, match="Unicode"):
        to_json({"a": "\ud800"})


async def test_calls_need_an_open_store() -> None:
    base = PostgresqlBase("there")
    for call in (base._read("SELECT 1"), base._call("end_usage", "w")):
        with pytest.raises(StoreError, match="'there' is not open"):
            await call
