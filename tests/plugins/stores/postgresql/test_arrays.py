"""Rows as the columns of one statement."""

import pytest

from gateway.plugins.stores.postgresql.arrays import to_arrays


def test_rows_become_columns() -> None:
    assert to_arrays([(1, "a"), (2, None)], 2) == [[1, 2], ["a", None]]
    assert to_arrays([], 3) == [[], [], []]


def test_row_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        to_arrays([(1, 2, 3)], 2)
