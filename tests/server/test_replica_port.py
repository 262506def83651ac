"""The port for other workers: where it is by default, and at which address others find it."""

import asyncio
from pathlib import Path

import pytest

from gateway.config import Settings
from gateway.config.values.addresses import Address
from gateway.server.replica_port import ReplicaPort, find_own_host, find_replica_listen
from gateway.testing.ports import free_port

POSTGRESQL = "postgresql://db.example/gateway"


def settings(**content: object) -> Settings:
    return Settings.model_validate(content, context={"folder": Path("/")})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"store": "sqlite:///:memory:"}, None),
        ({"store": "sqlite:////tmp/x.db", "listen": "0.0.0.0:8080"}, "127.0.0.1:0"),
        ({"store": POSTGRESQL, "listen": "0.0.0.0:8080"}, "0.0.0.0:0"),
        ({"store": POSTGRESQL, "replicas": {"listen": "10.0.0.1:9000"}}, "10.0.0.1:9000"),
        ({"store": "nonsense://x"}, None),
    ],
)
def test_port_is_where_others_on_the_store_can_be(content: dict[str, object], expected: str | None) -> None:
    """A file has workers of one machine only, and a store in memory has one worker."""
    found = find_replica_listen(settings(**content), Path("/"))
    assert (None if found is None else str(found)) == expected


async def test_workers_take_ports_in_turn() -> None:
    """Another one is named to others where the settings have one."""
    first = Address("127.0.0.1", free_port())
    chosen = settings(workers=2, replicas={"address": "gw-1.example"})
    ports = [ReplicaPort(first, chosen, asyncio.Protocol) for _ in range(2)]
    try:
        assert await ports[0].listen() == f"gw-1.example:{first.port}"
        assert await ports[1].listen() != f"gw-1.example:{first.port}"
        with pytest.raises(OSError, match="in use"):
            await ReplicaPort(first, settings(), asyncio.Protocol).listen()
    finally:
        for port in ports:
            await port.close()


def test_machine_is_found_by_an_address_of_its_own() -> None:
    assert find_own_host("10.0.0.1") == "10.0.0.1"
    assert find_own_host("0.0.0.0") not in ("0.0.0.0", "")
