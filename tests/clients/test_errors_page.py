"""The table in docs/errors.md is true: what each client library does on each error."""

import pytest

from tests.clients.refusing import TABLE, measure

pytestmark = pytest.mark.clients


def test_errors_page_matches_measured_client_library_behavior() -> None:
    """Measured anew; `python -m tests.clients.refusing` writes it."""
    assert measure() == TABLE.read()
