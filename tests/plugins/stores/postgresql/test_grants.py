"""Grants in PostgreSQL: the contract."""

import pytest

from tests.plugins.stores.contract_grants import *  # noqa: F403 - the tests of the contract run here

pytestmark = pytest.mark.postgres
