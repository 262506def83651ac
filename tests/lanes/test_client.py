"""What a turn is: the lanes' turns have all of it, so that a connection need not know which one it has."""

from typing import get_type_hints

import pytest

from gateway.lanes.aiohttp_adapter import LocalTransaction
from gateway.lanes.client import Transaction
from gateway.lanes.passthrough.exchange import PassthroughExchange
from gateway.lanes.passthrough.tunnel import Tunnel

MEMBERS = [name for name in vars(Transaction) if not name.startswith("_")]


@pytest.mark.parametrize("kind", [PassthroughExchange, Tunnel, LocalTransaction])
def test_every_transaction_class_implements_the_protocol(kind: type) -> None:
    """Each member of the protocol, and the methods with its signatures."""
    assert len(MEMBERS) >= 8
    for name in MEMBERS:
        ours, theirs = getattr(Transaction, name), getattr(kind, name)
        if callable(ours):
            assert get_type_hints(ours) == get_type_hints(theirs, vars(__import__(kind.__module__, fromlist=["x"])))


def test_each_transaction_class_has_its_own_mode() -> None:
    """The label of the metric of requests under way."""
    assert {kind.mode for kind in (PassthroughExchange, Tunnel)} == {"passthrough", "tunnel"}
