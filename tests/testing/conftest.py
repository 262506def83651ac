"""Everything here holds on both event loops."""

import pytest
from certificates import Certificates, self_signed
from event_loops import LOOPS, Factories


def pytest_asyncio_loop_factories() -> Factories:
    return LOOPS


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return self_signed(tmp_path_factory.mktemp("certificates"))
