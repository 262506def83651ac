"""The collector of cycles while something is built to stay."""

import gc

import pytest

from gateway.cli.gc_tuning import collector_off


def fail() -> None:
    assert not gc.isenabled()
    raise ValueError("it cannot be built")


def test_collector_is_enabled_again_after_an_error() -> None:
    """Also where what is built cannot be: a process that goes on must not keep its garbage."""
    with pytest.raises(ValueError, match="it cannot be built"), collector_off():
        fail()
    assert gc.isenabled()
