"""What the tests share: both event loops where sockets are, certificates, and an ear for errors nobody awaits."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from loops import ONE, Factories, loops_of

from gateway.testing.tls import Certificates, self_signed

# A machine that others use, too, stands still now and then.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

#: Folders whose tests must hold on both loops; elsewhere a test drives a process, or no socket at all.
BOTH_LOOPS = frozenset(("context", "demo", "functional", "lanes", "testing", "upstream"))


def pytest_asyncio_loop_factories(item: pytest.Item) -> Factories:
    return loops_of(item) if item.path.parent.name in BOTH_LOOPS else ONE


@pytest.fixture(autouse=True)
def nothing_fails_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """An exception in a callback, a protocol or a task that nobody awaits fails the test: the loop only logs it."""
    yield
    unseen = [r.getMessage() for r in caplog.get_records("call") if r.name == "asyncio" and r.levelno >= logging.ERROR]
    assert not unseen


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return self_signed(tmp_path_factory.mktemp("certificates"))
