"""What the tests share: both event loops where sockets are, certificates, and an ear for errors nobody awaits."""

import contextlib
import gc
import importlib
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web_app
from certificates import Certificates, self_signed
from event_loops import ONE, Factories, loops_of
from hypothesis import HealthCheck, settings

from gateway.plugins.stores.sqlite.file import keep_blank
from tests.support.forkserver import OWNER, SOCKET

# Thousands of tests open a new store, and to make its tables would take most of their time.
keep_blank()

# A machine that others use, too, stands still now and then. The suite tries the same examples each time; `make soak`
# tries others, and many.
settings.register_profile("soak", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=1000)
settings.register_profile("suite", settings.get_profile("soak"), max_examples=30, derandomize=True, database=None)
settings.load_profile("suite")

# A shell's `&` has programs ignore Ctrl-C, and theirs with them: gateways are to hear it as in a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]
#: A gateway makes thousands of objects in a test: the garbage collector's own measure has it run at each turn.
COLLECTED_EACH = (5000, 10, 10)
#: Folders whose tests must hold on both loops; elsewhere a test drives a process, or no socket at all.
BOTH_LOOPS = frozenset(("api", "context", "demo", "e2e", "functional", "lanes", "testing", "upstream"))


def pytest_asyncio_loop_factories(item: pytest.Item) -> Factories:
    return loops_of(item) if item.path.parent.name in BOTH_LOOPS else ONE


def pytest_configure(config: pytest.Config) -> None:
    """Gateways are forked from one process that serves all of pytest-xdist's; the first that needs one starts it."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="twolane-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder))
        os.environ.update({SOCKET: f"{folder}/forkserver", OWNER: str(os.getpid())})


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """The garbage collector leaves alone what this makes: it stays to the end, and is most of what there is."""
    gc.disable()
    try:
        worker = getattr(session.config, "workerinput", None)
        if worker is not None and not session.config.option.lf:  # what failed last is in few files
            import_share(session.config.args, int(worker["workerid"].removeprefix("gw")), worker["workercount"])
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*COLLECTED_EACH)
        gc.enable()


def import_share(arguments: list[str], worker: int, workers: int) -> None:
    """In a fresh checkout each of pytest-xdist's workers rewrites its share of the tests, then all read all of it.

    One that cannot be imported is reported by the collection, which tries again.
    """
    asked = [Path(argument.partition("::")[0]).absolute() for argument in arguments]
    files = sorted(file for path in asked for file in (path.rglob("test_*.py") if path.is_dir() else [path]))
    for file in files[worker::workers]:
        if (file.parent / "__init__.py").exists():
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


@pytest.fixture(autouse=True)
def nothing_fails_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """An exception in a callback, a protocol or a task that nobody awaits fails the test: the loop only logs it."""
    yield
    unseen = [r.getMessage() for r in caplog.get_records("call") if r.name == "asyncio" and r.levelno >= logging.ERROR]
    assert not unseen


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """aiohttp keeps the handlers of a thousand routes, and whole gateways with them, their files and their tasks."""
    yield
    web_app._cached_build_middleware.cache_clear()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return self_signed(tmp_path_factory.mktemp("certificates"))
