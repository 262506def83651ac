"""Each file of tests is run by exactly one of several processes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.file_share import LONG, divide_arguments

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_every_file_is_collected_by_one_process(workers: int) -> None:
    """And each has as many, but for one."""
    files = set(TESTS.rglob("test_*.py"))
    shares = [divide_arguments([str(TESTS)], worker, workers) for worker in range(workers)]
    assert [arguments for arguments, _ in shares] == [[str(TESTS)]] * workers
    own = [files - others for _, others in shares]
    assert set.union(*own) == files and sum(map(len, own)) == len(files)
    assert max(map(len, own)) - min(map(len, own)) <= 1


def test_named_files_and_tests_go_to_one_process() -> None:
    """Beside folders, and however often they are named."""
    named = ["tests/a/test_b.py", "tests/c/test_d.py::test_e[f/g]", "tests/h/test_i.py"]
    arguments = [str(TESTS / "support"), *named, named[0]]
    shares = [divide_arguments(arguments, worker, 2) for worker in range(2)]
    assert [share[0] for share in shares] == [[arguments[0], named[0], named[2]], [arguments[0], named[1]]]
    assert not shares[0][1] & shares[1][1]


def test_each_test_runs_once_in_several_processes() -> None:
    """Every process has a part of the files, and none of another's."""
    options = ["-n", "2", "--dist", "each", "-vv", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "tests/text"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, check=False)
    ran = re.findall(r"^\[(gw\d)\] .*PASSED (tests/\S+)", done.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stdout
    assert {process for process, _ in ran} == {"gw0", "gw1"}
    assert len({test for _, test in ran}) == len(ran) > 10


def test_long_files_exist() -> None:
    """A file that was renamed is to be renamed there."""
    assert [name for name in LONG if not (TESTS / name).is_file()] == []
