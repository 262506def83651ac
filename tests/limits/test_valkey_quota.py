"""The shares of limits in a Valkey server: the contract of all places, calls that are sent again, and restarts."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from gateway.contracts.storage.quota import QUOTA_GONE_S, QuotaAnswer, ShareGrant, ShareRequest
from gateway.contracts.storage.store import StoreError
from gateway.limits.share_memory import REQUESTS
from gateway.limits.valkey_quota import FORGOTTEN_S, PREFIX, SCRIPT, ValkeyQuota, connect_client, read_server_facts
from gateway.testing.ports import free_port
from tests.limits.sharing import share_limits
from tests.plugins.stores.contract_quota import *  # noqa: F403
from tests.plugins.stores.contract_quota import BEGAN_S, WINDOW_S, Asking, want
from tests.plugins.stores.postgresql.cutting_proxy import cutting_proxy
from tests.valkey_servers import ValkeyServer, valkey_server

pytestmark = pytest.mark.valkey

#: In place of the clock of the server: the contract's tests let time pass without waiting for it.
CLOCKED = SCRIPT.replace("redis.call('TIME')", "{redis.call('GET', 'test_clock'), 0}")


class ClockedQuota(ValkeyQuota):
    """Shares in a server that has the time which its caller names."""

    def __init__(self, server: ValkeyServer) -> None:
        super().__init__(server.url, script=CLOCKED)
        self._now_s = -1.0

    async def share_quota(
        self, gateway: str, requests: Sequence[ShareRequest], *, turn: int, now_s: float
    ) -> QuotaAnswer:
        self._now_s = now_s
        return await super().share_quota(gateway, requests, turn=turn, now_s=now_s)

    async def _evaluate(self, values: Sequence[str | float]) -> bytes:
        await self._client.set("test_clock", self._now_s)
        return await super()._evaluate(values)


@pytest.fixture(scope="module")
def shared_server() -> Iterator[ValkeyServer]:
    with valkey_server() as server:
        yield server


@pytest.fixture
def server(shared_server: ValkeyServer) -> ValkeyServer:
    shared_server.empty()
    return shared_server


@pytest.fixture
async def store(server: ValkeyServer) -> AsyncIterator[ValkeyQuota]:
    quota = ClockedQuota(server)
    yield quota
    await quota.close()


async def test_gateways_share_a_limit_in_turns(server: ValkeyServer) -> None:
    """As they do in a store: nearly all is given, and never more."""
    place = ClockedQuota(server)
    fleet = await share_limits(place, 3, requests_per_minute=100)
    admitted = 0
    for _ in range(4):
        for gateway in fleet.gateways:
            admitted += len(await fleet.admitted(gateway, 20))
    assert admitted == 100
    assert sum(gateway.share(REQUESTS, fleet.caller) for gateway in fleet.gateways) <= 100
    await place.close()


async def test_call_that_is_sent_again_is_found_done(server: ValkeyServer) -> None:
    """Its connection was lost before the answer came; a later call of the same gateway is another one."""
    async with cutting_proxy(server.port) as (proxy, port):
        quota = ValkeyQuota(f"valkey://127.0.0.1:{port}/0")
        await quota.share_quota("one", [want(1)], turn=1, now_s=0.0)
        proxy.cut_down = 1
        answer = await quota.share_quota("one", [want(6)], turn=2, now_s=0.0)
        assert proxy.cuts == 1 and answer.grants[0].share == 6
        assert (await quota.share_quota("other", [want(9)], turn=1, now_s=0.0)).grants[0].share == 4
        await quota.close()


async def test_server_that_cannot_be_reached_is_a_store_that_fails() -> None:
    """So requests are refused once the lease is over. The message names the server, and no password."""
    quota = ValkeyQuota(f"redis://gateway:secret@127.0.0.1:{free_port()}/0")
    with pytest.raises(StoreError, match="Valkey: ") as failure:
        await quota.share_quota("one", [], turn=1, now_s=0.0)
    assert "secret" not in str(failure.value)
    await quota.close()


async def test_caller_that_stops_waiting_gets_no_answer_of_another_call(server: ValkeyServer) -> None:
    quota = ValkeyQuota(server.url)
    await quota.share_quota("one", [want(1)], turn=1, now_s=0.0)
    given_up = asyncio.create_task(quota.share_quota("one", [want(2), want(3, name="b")], turn=2, now_s=0.0))
    await asyncio.sleep(0)  # it has been sent
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert [grant.name for grant in (await quota.share_quota("one", [want(2)], turn=3, now_s=0.0)).grants] == [
        "key requests"
    ]
    await quota.close()


@pytest.mark.parametrize("keeps", [False, True])
async def test_restarted_server_grants_nothing_until_all_shares_are_known(keeps: bool) -> None:
    """It may have forgotten what gateways hold, and what a dead one used of the minute, also if it keeps its data."""
    with valkey_server(keeps=keeps) as server:
        server.empty()
        place = ClockedQuota(server)
        one, other, dead = (Asking(place, name) for name in ("one", "other", "dead"))  # type: ignore[arg-type]
        assert [(await gateway.share(want(3))).share for gateway in (one, other, dead)] == [3, 3, 3]
        server.kill()
        server.start()
        now_s = BEGAN_S + 1
        assert await other.share(want(9, held=3, used=3), now_s=now_s) == ShareGrant(
            name="key requests", share=3, free=0, used=7, spare=0
        )
        new = Asking(ValkeyQuota(server.url, script=CLOCKED), "new")  # type: ignore[arg-type]
        assert (await new.share(want(4), now_s=now_s)).share == 0
        while now_s < BEGAN_S + QUOTA_GONE_S + WINDOW_S:
            assert (await one.share(want(10, held=3, used=3), now_s=now_s)).share == 3
            assert (await other.share(want(10, held=3, used=3), now_s=now_s)).share == 3
            now_s += 1.5
        now_s = BEGAN_S + QUOTA_GONE_S + WINDOW_S + 1.1
        await other.share(want(3, held=3, used=3), now_s=now_s)
        assert (await one.share(want(10, held=3, used=3), now_s=now_s)).share == 7
        await place.close()
        await new.store.close()


async def test_new_server_waits_for_gateways_at_work_only(shared_server: ValkeyServer) -> None:
    """Where none has been counted before, there is nothing that it could have lost."""
    shared_server.send("FLUSHALL")
    place = ClockedQuota(shared_server)
    one = Asking(place, "one")  # type: ignore[arg-type]
    assert (await one.share(want(4))).share == 0
    assert (await one.share(want(4), now_s=BEGAN_S + QUOTA_GONE_S + 0.1)).share == 4
    await place.settle()
    await place.close()


async def test_emptied_server_lost_shares(server: ValkeyServer) -> None:
    """A gateway that holds some says so, also a worker that has never called it before."""
    place = ClockedQuota(server)
    one = Asking(place, "one")  # type: ignore[arg-type]
    await one.share(want(4))
    server.send("FLUSHALL")
    assert (await one.share(want(8, held=4), now_s=BEGAN_S + 1)).share == 4
    server.send("FLUSHALL")
    restarted = ClockedQuota(server)
    again = Asking(restarted, "one")  # type: ignore[arg-type]
    assert (await again.share(want(8, held=4), now_s=BEGAN_S + 2)).share == 4
    assert (await again.share(want(8, held=4), now_s=BEGAN_S + 2 + QUOTA_GONE_S + 1)).share == 4
    assert (await again.share(want(8, held=4), now_s=BEGAN_S + 3 + QUOTA_GONE_S + WINDOW_S)).share == 8
    await place.close()
    await restarted.close()


async def test_all_keys_but_one_expire(server: ValkeyServer) -> None:
    """Also those of a gateway that only reports for a long time; those of a silent one are deleted."""
    place = ClockedQuota(server)
    one, other = Asking(place, "one"), Asking(place, "other")  # type: ignore[arg-type]
    await one.share(want(8, name="a", needed=9))
    await other.ask(want(1, name="b"))
    keys = server.send("KEYS", f"{PREFIX}*").decode().split("\r\n")[2:-1:2]
    lasting = [key for key in keys if server.send("TTL", key).startswith(b":-1")]
    assert len(keys) == 9 and lasting == [f"{PREFIX}life"]
    for passed_s in range(0, 3 * FORGOTTEN_S, 5):
        await other.ask(now_s=BEGAN_S + passed_s)
    left = server.send("KEYS", f"{PREFIX}*:one").decode().split("\r\n")[2:-1:2]
    assert left == [f"{PREFIX}answer:one"]  # which expires
    assert server.send("EXISTS", f"{PREFIX}limit:b") == b":1\r\n"
    await place.close()


async def test_name_of_a_server_is_checked_with_tls() -> None:
    """The client does so only where it is set; without TLS there is none."""
    for url, checked in (
        ("valkeys://cache:6379/0", True),
        ("rediss://cache:6379/0?ssl_check_hostname=false", False),
        ("valkey://cache:6379/0", None),
    ):
        client = connect_client(url)
        assert client.connection_pool.connection_kwargs.get("ssl_check_hostname") is checked
        await client.aclose()


async def test_facts_of_a_server_are_read(server: ValkeyServer) -> None:
    facts = await read_server_facts(server.url)
    assert facts.name in {"Valkey", "Redis"} and facts.version[0].isdecimal() and facts.eviction == "noeviction"
    with pytest.raises(StoreError):
        await read_server_facts(f"redis://127.0.0.1:{free_port()}/0")


async def test_documented_rights_of_a_user_suffice(server: ValkeyServer) -> None:
    """docs/limits.md names them."""
    (rights,) = re.findall(
        r"needs `(~\{twolane-limits\}\S* [^`]*)`", (Path(__file__).parents[2] / "docs/limits.md").read_text()
    )
    server.send("ACL", "SETUSER", "gateway", "on", ">secret", *rights.split())
    url = server.url.replace("redis://", "valkey://gateway:secret@")
    quota = ValkeyQuota(url)
    assert (await quota.share_quota("one", [want(3)], turn=1, now_s=0.0)).grants[0].share == 3
    assert (await quota.share_quota("one", [want(0)], turn=2, now_s=0.0)).grants[0].share == 0
    await quota.close()
    assert (await read_server_facts(url)).eviction == "noeviction"
    server.send("ACL", "DELUSER", "gateway")


async def test_server_that_became_a_replica_is_looked_up_anew() -> None:
    """Its name may lead to another one after a failover, so no connection is kept."""
    with valkey_server() as server:
        server.empty()
        quota = ValkeyQuota(server.url)
        await quota.share_quota("one", [want(3)], turn=1, now_s=0.0)
        server.send("REPLICAOF", "127.0.0.1", str(free_port()))
        with pytest.raises(StoreError, match="read only replica"):
            await quota.share_quota("one", [want(3)], turn=2, now_s=0.0)
        assert b"name=twolane" not in server.send("CLIENT", "LIST")
        server.send("REPLICAOF", "NO", "ONE")
        assert (await quota.share_quota("one", [want(3)], turn=3, now_s=0.0)).grants[0].share == 3
        await quota.close()
