"""The keys of answers: when they are written, and that no failure keeps later ones back."""

from collections.abc import Sequence

import pytest

from gateway.contracts.storage.store import StoreError
from gateway.plugin.answer_keys import AnswerKey, AnswerKeyBatch


class Table:
    """The rows as they were written, one list for each write. It fails as often as it is to."""

    def __init__(self, failures: int = 0) -> None:
        self.writes: list[list[AnswerKey]] = []
        self._failures = failures

    async def write(self, rows: Sequence[AnswerKey]) -> None:
        if self._failures:
            self._failures -= 1
            raise StoreError("the disk is full")
        self.writes.append(list(rows))


async def test_search_for_a_key_writes_the_waiting_keys_together() -> None:
    table = Table()
    keys = AnswerKeyBatch(table.write)
    await keys.add("turn_1", keys=["a", "b"], tenant="acme", now_s=1.0)
    await keys.add("turn_2", keys=["c"], tenant="acme", now_s=2.0)
    await keys.write_any(["b"], tenant="acme")
    rows = [("acme", "a", "turn_1", 1.0), ("acme", "b", "turn_1", 1.0), ("acme", "c", "turn_2", 2.0)]
    assert table.writes == [rows]


async def test_search_for_other_keys_writes_nothing() -> None:
    """Nor does one for the same key of another tenant."""
    table = Table()
    keys = AnswerKeyBatch(table.write)
    await keys.add("turn_1", keys=["a"], tenant="acme", now_s=1.0)
    await keys.write_any(["b"], tenant="acme")
    await keys.write_any(["a"], tenant="other")
    assert table.writes == []
    await keys.write_all()
    assert [len(rows) for rows in table.writes] == [1]


async def test_many_keys_are_written_in_several_batches() -> None:
    """A batch that has 512 keys does not wait for others; every key is written once."""
    table = Table()
    keys = AnswerKeyBatch(table.write)
    for number in range(10_000):
        await keys.add(f"turn_{number}", keys=[str(number)], tenant="acme", now_s=0.0)
    await keys.write_all()
    assert sorted(int(row.key) for rows in table.writes for row in rows) == list(range(10_000))


async def test_failed_write_is_logged_and_later_keys_are_written(caplog: pytest.LogCaptureFixture) -> None:
    table = Table(failures=1)
    keys = AnswerKeyBatch(table.write)
    await keys.add("turn_1", keys=["a"], tenant="acme", now_s=1.0)
    await keys.write_all()
    await keys.add("turn_2", keys=["b"], tenant="acme", now_s=2.0)
    await keys.write_all()
    assert table.writes == [[("acme", "b", "turn_2", 2.0)]]
    assert "1 keys of answers without hidden turns are not kept: the disk is full" in caplog.text
