"""The table of clients and situations in docs/clients.md is the one of these tests."""

import pytest

from tests.clients.matrix import COLUMNS, NONE, ROWS, TABLE, collected, table

pytestmark = pytest.mark.clients


def test_compatibility_page_matches_the_collected_tests() -> None:
    """No more and no fewer; `python -m tests.clients.matrix` writes them."""
    cells = collected()
    assert {row for row, _ in cells} == set(ROWS) and {column for _, column in cells} == set(COLUMNS)
    assert [cell for cell in cells if cell[1] in NONE.get(cell[0], {})] == []
    assert table(cells) == TABLE.read()
