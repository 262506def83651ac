"""The record of a lease, which plugins import by its own name."""

from gateway import plugin
from gateway.contracts.storage.replicas import ReplicaLease


def test_plugins_have_the_record_of_a_lease() -> None:
    assert plugin.ReplicaLease is ReplicaLease
    assert ReplicaLease(name="n", owner="w1", address="") == ReplicaLease(name="n", owner="w1", address="")
