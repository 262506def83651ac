"""Grants and conversations that ask before every call, in every store; imported like `contract`."""

from dataclasses import replace

from gateway.contracts.storage.journal import AskBefore, Grant
from gateway.contracts.storage.store import Store
from tests.plugins.stores.contract import Reopen
from tests.plugins.stores.records import (
    audit_line,
    broken,
    event,
    grant,
    moved,
    parked,
    run,
    write,
)


async def granted(store: Store, *grants: object) -> None:
    for number, remembered in enumerate(grants):
        tenant = remembered.tenant  # type: ignore[attr-defined]
        await store.write(parked(f"r{number}", approval_id=f"ap_{number}", tenant=tenant))
        await store.decide_approval(write(f"ap_{number}", tenant=tenant, grant=remembered))


async def test_grant_matches_the_same_call_in_its_run_or_conversation(store: Store) -> None:
    """The newest; one for a run is none for the conversation around it, and none for another caller or tenant."""
    in_run = grant("gr_run", run_id="run_1", conversation="c1", created_s=1.0)
    in_talk = grant("gr_talk", run_id=None, conversation="c1", created_s=2.0)
    newer = grant("gr_new", run_id=None, conversation="c1", created_s=3.0, sha256="e" * 64)
    theirs = grant("gr_their", run_id=None, conversation="c1", tenant="other")
    await granted(store, newer, in_talk, in_run, theirs, replace(newer, id="gr_old", created_s=2.5))
    assert [g.id for g in await store.list_grants(tenant="acme", now_s=5.0, limit=9)] == [
        "gr_run",
        "gr_talk",
        "gr_old",
        "gr_new",
    ]

    async def found(**changes: str | None) -> str | None:
        asked: dict[str, str | None] = {"run_id": "run_1", "conversation": None, "sha256": "a" * 64, "caller": "ann"}
        kept = await store.grant(**{"tenant": "acme", "user": None, "now_s": 5.0, **asked, **changes})  # type: ignore[arg-type]
        return kept.id if kept is not None else None

    assert await found() == "gr_run"
    assert await found(conversation="c1") == "gr_talk"
    assert await found(conversation="c1", run_id="run_2") == "gr_talk"
    assert await found(conversation="c1", sha256="e" * 64) == "gr_new"
    assert await found(run_id="run_2") is None
    assert await found(conversation="c2", run_id="run_2") is None
    assert await found(caller="bob", conversation="c1") is None
    assert await found(tenant="other") is None
    assert await found(sha256="0" * 64, conversation="c1") is None


async def test_conversation_grant_belongs_to_its_end_user(store: Store) -> None:
    """It is none for another user of this key and name, nor for a request without one. One of a run is the run's."""
    anna = grant("gr_anna", run_id=None, conversation="c1", user="anna")
    unnamed = grant("gr_unnamed", run_id=None, conversation="c2")
    in_run = grant("gr_run", run_id="run_1", user="anna", sha256="e" * 64)
    await granted(store, anna, unnamed, in_run)

    async def found(user: str | None, conversation: str, sha256: str = "a" * 64) -> Grant | None:
        return await store.grant(
            tenant="acme", caller="ann", user=user, run_id="run_1", conversation=conversation, sha256=sha256, now_s=5.0
        )

    assert await found("anna", "c1") == anna
    assert await found("bob", "c1") is await found(None, "c1") is await found("anna", "c2") is None
    assert await found(None, "c2") == unnamed
    assert await found("bob", "c1", "e" * 64) == in_run


async def test_a_deleted_grant_holds_no_more(store: Store) -> None:
    """Deleting says whether there was one in this tenant, and leaves its lines if there was."""
    await granted(store, grant())
    lines = len(await store.audit(after=0, limit=99))
    line = audit_line("revoked")
    assert await store.delete_grant("gr_1", tenant="other", audit=[line]) is False
    assert await store.delete_grant("gr_1", tenant="acme", audit=[line]) is True
    assert await store.delete_grant("gr_1", tenant="acme", audit=[line]) is False
    assert await store.list_grants(tenant="acme", now_s=0.0, limit=9) == []
    assert [row.line for row in await store.audit(after=lines, limit=99)] == [line]


async def test_conversation_grant_expires(store: Store) -> None:
    """At its time, to the second; one of a run has no end of its own."""
    await granted(store, grant("gr_talk", run_id=None, conversation="c1", expires_s=50.0), grant("gr_run"))
    for now_s, ids in ((49.0, {"gr_talk", "gr_run"}), (50.0, {"gr_run"}), (1e12, {"gr_run"})):
        assert {g.id for g in await store.list_grants(tenant="acme", now_s=now_s, limit=9)} == ids
    asked = {
        "tenant": "acme",
        "caller": "ann",
        "user": None,
        "run_id": "run_9",
        "conversation": "c1",
        "sha256": "a" * 64,
    }
    assert await store.grant(**asked, now_s=49.0) is not None  # type: ignore[arg-type]
    assert await store.grant(**asked, now_s=50.0) is None  # type: ignore[arg-type]


async def test_grants_come_in_pages_the_oldest_first(store: Store) -> None:
    """Of one tenant; those of the same moment as they were given, and none that has expired, though a page may begin
    behind it, as long as it is there.
    """
    ends = {"gr_c": 5.0}
    kept = [
        grant(grant_id, run_id=None, conversation="c1", created_s=created_s, expires_s=ends.get(grant_id, 50.0))
        for grant_id, created_s in (("gr_z", 1.0), ("gr_b", 2.0), ("gr_a", 2.0), ("gr_c", 2.0), ("gr_d", 3.0))
    ]
    await granted(store, *kept, grant("gr_their", tenant="other", created_s=2.5))

    async def page(*, after: str | None = None, limit: int = 9, tenant: str = "acme", now_s: float = 5.0) -> list[str]:
        return [g.id for g in await store.list_grants(tenant=tenant, now_s=now_s, after=after, limit=limit)]

    assert await page() == ["gr_z", "gr_b", "gr_a", "gr_d"]
    assert await page(now_s=4.9) == ["gr_z", "gr_b", "gr_a", "gr_c", "gr_d"]
    assert await page(limit=2) == ["gr_z", "gr_b"]
    assert await page(after="gr_b", limit=1) == ["gr_a"]
    assert await page(after="gr_c") == ["gr_d"]
    assert await page(after="gr_d") == await page(after="gr_their") == await page(after="gr_0") == []
    assert await page(tenant="other") == ["gr_their"]
    assert await store.grant_by_id("gr_c", tenant="acme") == kept[3]
    assert await store.grant_by_id("gr_c", tenant="other") is await store.grant_by_id("gr_0", tenant="acme") is None


def asking(conversation: str, *, tenant: str = "acme", caller: str = "ann", at_s: float, lasts_s: float) -> AskBefore:
    return AskBefore(
        id=f"ask_{conversation}_{caller}",
        tenant=tenant,
        caller=caller,
        conversation=conversation,
        created_s=at_s,
        expires_s=at_s + lasts_s,
    )


async def test_ask_before_of_a_conversation_lasts_until_expiry_or_revocation(store: Store) -> None:
    """Said once or twice, the later end holds; of this caller in this tenant only; taken back it is gone at once."""
    first, again = (asking("c1", at_s=at_s, lasts_s=10.0) for at_s in (1.0, 5.0))
    assert await store.ask_by_id(first.id, tenant="acme") is None
    for ask in (first, again):
        await store.put_ask(ask)
    kept = replace(first, expires_s=15.0)
    assert await store.list_asks(tenant="acme", now_s=14.9, limit=9) == [kept]
    assert await store.list_asks(tenant="other", now_s=1.0, limit=9) == []
    assert await store.list_asks(tenant="acme", now_s=15.0, limit=9) == []
    assert await store.ask_by_id(first.id, tenant="acme") == kept
    theirs = replace(first, id="ask_of_bob", user="bob")
    await store.put_ask(theirs)
    line = audit_line("revoked")
    assert await store.delete_ask(replace(first, tenant="other"), audit=[line]) is False
    assert await store.delete_ask(first, audit=[line]) is True
    assert await store.list_asks(tenant="acme", now_s=5.0, limit=9) == [theirs]
    assert [row.line for row in await store.audit(after=0, limit=9)] == [line]


async def test_asks_come_in_pages_the_oldest_first(store: Store) -> None:
    """Of one tenant; those of the same moment by caller and conversation, and none that has expired, though a page may
    begin behind it, as long as it is there.
    """
    kept = [
        asking(conversation, caller=caller, at_s=at_s, lasts_s=3.0 if conversation == "c5" else 50.0)
        for conversation, caller, at_s in (
            ("c3", "bob", 2.0),
            ("c4", "bob", 2.0),
            ("c9", "ann", 2.0),
            ("c5", "cis", 2.0),
            ("c1", "dan", 1.0),
            ("c2", "ann", 3.0),
        )
    ]
    for ask in (*kept, asking("c1", tenant="other", caller="eve", at_s=2.5, lasts_s=50.0)):
        await store.put_ask(ask)

    async def page(*, after: str | None = None, limit: int = 9, tenant: str = "acme", now_s: float = 5.0) -> list[str]:
        return [ask.id for ask in await store.list_asks(tenant=tenant, now_s=now_s, after=after, limit=limit)]

    in_order = ["ask_c1_dan", "ask_c9_ann", "ask_c3_bob", "ask_c4_bob", "ask_c2_ann"]
    assert await page() == in_order
    assert await page(now_s=4.9) == [*in_order[:4], "ask_c5_cis", in_order[4]]
    assert await page(limit=2) == in_order[:2]
    assert await page(after=in_order[1], limit=2) == in_order[2:4]
    assert await page(after="ask_c5_cis") == in_order[4:]
    assert await page(after=in_order[4]) == await page(after="ask_c1_eve") == await page(after="ask_0") == []
    assert await page(tenant="other") == ["ask_c1_eve"]
    assert await store.ask_by_id("ask_c5_cis", tenant="acme") == kept[3]
    assert await store.ask_by_id("ask_c5_cis", tenant="other") is await store.ask_by_id("ask_0", tenant="acme") is None


async def test_all_records_of_a_run_survive_reopening(reopened: Reopen) -> None:
    """What was told as done: the run, steps, the decision, the grant, events, the log, and where it ends."""
    store = await reopened()
    await store.write(replace(parked(), events=(event(),), audit=(audit_line(),)))
    _, decided = await store.decide_approval(write(grant=grant(), audit=(audit_line("decision"),)))
    await store.put_ask(asking("c1", at_s=1.0, lasts_s=8.0))
    again = await reopened()
    assert await again.get_approval("ap_1", tenant="acme") == decided
    assert [s.state for s in await again.list_steps("run_1", tenant="acme")] == ["requested"]
    assert await again.list_grants(tenant="acme", now_s=0.0, limit=9) == [grant()]
    assert await again.list_asks(tenant="acme", now_s=2.0, limit=9) == [asking("c1", at_s=1.0, lasts_s=8.0)]
    assert await again.get_last_event() == 1
    await again.write(moved(run(), audit=(audit_line("started"),)))
    assert broken(await again.audit(after=0, limit=9)) is None
