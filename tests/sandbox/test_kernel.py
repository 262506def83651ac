"""System calls by number answer as the system says."""

import os
from pathlib import Path

import pytest

from gateway.sandbox.kernel import call_openat2, get_filesystem_type
from tests.sandbox.machine import in_child

PROC_SUPER_MAGIC = 0x9FA0


def test_failing_system_call_raises_the_error_of_its_errno() -> None:
    """The error number of the call, not of anything else."""
    with pytest.raises(FileNotFoundError):
        call_openat2(-100, "/nowhere/at/all", flags=os.O_RDONLY, mode=0, resolve=0)


def test_filesystem_type_distinguishes_proc_from_other_folders(tmp_path: Path) -> None:
    """proc is proc, and a folder of ours is not."""
    found = {}
    for path in ("/proc", str(tmp_path)):
        descriptor = os.open(path, os.O_RDONLY)
        found[path] = get_filesystem_type(descriptor)
        os.close(descriptor)
    assert found["/proc"] == PROC_SUPER_MAGIC != found[str(tmp_path)]


def test_capabilities_are_given_up() -> None:
    """Afterwards none is effective or permitted."""
    printed = in_child(
        "from gateway.sandbox.kernel import drop_capabilities; drop_capabilities();"
        "print([l.split()[1] for l in open('/proc/self/status') if l.startswith(('CapEff', 'CapPrm'))])"
    )
    assert printed == "['0000000000000000', '0000000000000000']"
