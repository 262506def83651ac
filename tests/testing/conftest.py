"""Everything here holds on both event loops."""

import pytest
from loops import LOOPS, Factories

from gateway.testing.tls import Certificates, self_signed


def pytest_asyncio_loop_factories() -> Factories:
    return LOOPS


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return self_signed(tmp_path_factory.mktemp("certificates"))
