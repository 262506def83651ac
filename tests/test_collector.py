"""The collector of cycles while something is built to stay."""

import gc

import pytest

from gateway.collector import collector_off


def test_it_looks_again_afterwards() -> None:
    """Also where what is built cannot be: a process that goes on must not keep its garbage."""
    with pytest.raises(ValueError, match="no"), collector_off():
        assert not gc.isenabled()
        raise ValueError("no")
    assert gc.isenabled()
