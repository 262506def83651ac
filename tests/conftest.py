"""What the tests share: both event loops where sockets are, certificates, and an ear for errors nobody awaits."""

import gc
import inspect
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web_app
from certificates import Certificates, self_signed
from event_loops import LOOPS, ONE, Factories, loops_of
from hypothesis import HealthCheck, settings

from gateway.plugins.stores.sqlite.file import keep_blank
from tests.support.case_table import merge_cases
from tests.support.file_share import divide_arguments
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

#: The files that the other processes of pytest-xdist collect.
OF_OTHERS = pytest.StashKey[frozenset[Path]]()
#: Fixtures of every test that hold for all cases of a table at once.
HARMLESS = frozenset(("caplog", "event_loop_policy", "nothing_fails_unseen", "nothing_stays", "request"))


def pytest_asyncio_loop_factories(item: pytest.Item) -> Factories:
    return loops_of(item) if item.path.parent.name in BOTH_LOOPS else ONE


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> pytest.Item | None:
    return merge_cases(collector, name, obj, HARMLESS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that run on the loops of TWOLANE_LOOPS, so that `-m` can choose them."""
    for item in items:
        if inspect.iscoroutinefunction(getattr(item, "function", None)):
            factories = item.ihook.pytest_asyncio_loop_factories(config=item.config, item=item)
            if factories is LOOPS:
                item.add_marker("looped")


def pytest_configure(config: pytest.Config) -> None:
    """Gateways are forked from one process that serves all of pytest-xdist's; the first that needs one starts it.

    With `--dist each`, each of these has files of its own.
    """
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="twolane-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder))
        os.environ.update({SOCKET: f"{folder}/forkserver", OWNER: str(os.getpid())})
    elif config.workerinput["has_own_files"]:
        worker, workers = config.workerinput["workerid"], config.workerinput["workercount"]
        config.args, config.stash[OF_OTHERS] = divide_arguments(config.args, int(worker.removeprefix("gw")), workers)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A process of pytest-xdist does not know how its tests are chosen."""
    node.workerinput["has_own_files"] = node.config.option.dist == "each"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path in config.stash.get(OF_OTHERS, ()) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """The garbage collector leaves alone what this makes: it stays to the end, and is most of what there is."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*COLLECTED_EACH)
        gc.enable()


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
