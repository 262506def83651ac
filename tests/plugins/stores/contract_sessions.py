"""The promises of every store to the console: a secret that stays, and sessions that people have ended."""

import asyncio

from gateway.contracts.storage.store import Store


async def test_named_secret_is_created_once(store: Store) -> None:
    """The first to ask makes it, whoever asks at the same time gets the same one; each name has its own."""
    secrets = await asyncio.gather(*(store.get_or_create_secret("console") for _ in range(5)))
    assert len(set(secrets)) == 1 and len(secrets[0]) >= 32
    assert await store.get_or_create_secret("console") == secrets[0] != await store.get_or_create_secret("other")


async def test_ended_session_stays_ended_until_its_expiry(store: Store) -> None:
    """Ending it again changes nothing; afterwards it is forgotten by the next one that ends."""
    assert set(await store.find_ended_sessions(["a"])) == set() == set(await store.find_ended_sessions([]))
    await store.end_session("a", until_s=100.0, now_s=1.0)
    await store.end_session("a", until_s=100.0, now_s=2.0)
    await store.end_session("b", until_s=200.0, now_s=99.0)
    assert set(await store.find_ended_sessions(["a", "b", "c", "", "a"])) == {"a", "b"}
    await store.end_session("c", until_s=300.0, now_s=101.0)
    assert set(await store.find_ended_sessions(["a", "b", "c"])) == {"b", "c"}
