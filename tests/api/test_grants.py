"""The pages of what is remembered, asked over HTTP."""

from collections.abc import Awaitable, Callable

import pytest

from gateway.contracts.storage.journal import AskBefore
from gateway.tools.grants import REMEMBERED_S
from tests.plugins.stores.records import grant, parked, write

from .approval_pages import NOW_S, Desktop, code_of, opened


async def revoked(desk: Desktop) -> list[tuple[str, ...]]:
    """By whom, by which way, what: as the audit log has it."""
    lines = (await desk.get("/context/audit", key="root"))[1]["data"]
    return [tuple(line[name] for name in ("by", "via", "tool", "rule")) for line in lines if line["event"] == "revoked"]


async def test_grants_are_listed_and_taken_back() -> None:
    """By a key that may decide, in its own tenant."""
    async with opened() as desk:
        await desk.post("/context/approvals/ap_1", {"decision": "approve", "remember": "conversation"})
        _, listed = await desk.get("/context/grants", key="agent")
        (one,) = listed["data"]
        facts = {key: one[key] for key in ("caller", "run_id", "conversation", "tool", "granted_by", "created_at")}
        assert facts == {
            "caller": "ann",
            "run_id": None,
            "conversation": "c1",
            "tool": "execute_command",
            "granted_by": "bob",
            "created_at": 200.0,
        }
        path = f"/context/grants/{one['id']}"
        assert (await desk.get("/context/grants", key="rival"))[1]["data"] == []
        assert code_of(await desk.ask("DELETE", path, key="rival")) == (404, "grant_not_found")
        assert code_of(await desk.ask("DELETE", path, key="agent")) == (403, "scope_missing")
        assert await desk.ask("DELETE", path) == (204, {})
        assert code_of(await desk.ask("DELETE", path)) == (404, "grant_not_found")
        assert (await desk.get("/context/grants"))[1]["data"] == []
        assert await revoked(desk) == [("bob", "rest", "execute_command", "")]


async def test_conversation_grant_expires_by_itself() -> None:
    """Its end is shown; afterwards it is not there, and there is nothing to take back."""
    async with opened() as desk:
        await desk.post("/context/approvals/ap_1", {"decision": "approve", "remember": "conversation"})
        (one,) = (await desk.get("/context/grants"))[1]["data"]
        assert one["expires_at"] == NOW_S + REMEMBERED_S
        desk.office.clock.now_s = one["expires_at"]
        assert (await desk.get("/context/grants"))[1]["data"] == []
        assert code_of(await desk.ask("DELETE", f"/context/grants/{one['id']}")) == (404, "grant_not_found")


async def test_asks_of_conversations_are_listed_and_revoked() -> None:
    """Whatever a conversation is called; by a key that may decide, in its own tenant, with a line in the audit log."""
    async with opened() as desk:
        whose = {"tenant": "acme", "caller": "ann", "created_s": NOW_S, "expires_s": NOW_S + 60}
        for conversation in ("a/b?c#d", "c2"):
            ask = AskBefore(id=f"ask_{conversation[0]}", conversation=conversation, **whose)  # type: ignore[arg-type]
            await desk.office.store.put_ask(ask)
        _, listed = await desk.get("/context/asks", key="agent")
        assert [(one["conversation"], one["caller"], one["expires_at"]) for one in listed["data"]] == [
            ("a/b?c#d", "ann", NOW_S + 60),
            ("c2", "ann", NOW_S + 60),
        ]
        path = f"/context/asks/{listed['data'][0]['id']}"
        assert (await desk.get("/context/asks", key="rival"))[1]["data"] == []
        assert code_of(await desk.ask("DELETE", path, key="rival")) == (404, "grant_not_found")
        assert code_of(await desk.ask("DELETE", path, key="agent")) == (403, "scope_missing")
        assert await desk.ask("DELETE", path) == (204, {})
        assert code_of(await desk.ask("DELETE", path)) == (404, "grant_not_found")
        assert [one["conversation"] for one in (await desk.get("/context/asks"))[1]["data"]] == ["c2"]
        assert await revoked(desk) == [("bob", "rest", "", "asked_for")]


async def add_grant(desk: Desktop, number: int, *, tenant: str = "acme", ends_s: float = NOW_S + 60) -> None:
    """The grant `grant_NUMBER`, given so many seconds after the first."""
    facts = {"run_id": None, "conversation": "c1", "created_s": float(number), "expires_s": ends_s}
    waiting = f"{tenant}_{number}"
    await desk.office.store.write(parked(waiting, approval_id=waiting, tenant=tenant))
    given = grant(f"grant_{number}", tenant=tenant, **facts)
    await desk.office.store.decide_approval(write(waiting, tenant=tenant, grant=given))


async def add_ask(desk: Desktop, number: int, *, tenant: str = "acme", ends_s: float = NOW_S + 60) -> None:
    """The ask `ask_NUMBER`, begun so many seconds after the first."""
    facts = {"conversation": f"c{9 - number}", "created_s": float(number), "expires_s": ends_s}
    await desk.office.store.put_ask(AskBefore(id=f"ask_{number}", tenant=tenant, caller="ann", **facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(("path", "kind", "add"), [("grants", "grant", add_grant), ("asks", "ask", add_ask)])
async def test_grant_and_ask_lists_are_paginated(path: str, kind: str, add: Callable[..., Awaitable[None]]) -> None:
    """The oldest first; each that stays comes once, while others are added and revoked, and the last of a page ends."""
    async with opened() as desk:
        for number in (5, 0, 3, 1, 2):
            await add(desk, number, ends_s=NOW_S + (1 if number == 3 else 60))
        await add(desk, 4, tenant="other")
        pages, after = [], ""
        while after is not None:
            status, answer = await desk.get(f"/context/{path}?limit=2{after and f'&after={after}'}")
            assert status == 200
            pages.append([one["id"].removeprefix(f"{kind}_") for one in answer["data"]])
            after = answer["next"]
            if after == f"{kind}_1":
                for gone in (0, 2):
                    assert (await desk.ask("DELETE", f"/context/{path}/{kind}_{gone}"))[0] == 204
                for added in (6, 7):
                    await add(desk, added)
            elif after == f"{kind}_5":
                assert pages[-1] == ["3", "5"]
                desk.office.clock.now_s += 1
        assert pages == [["0", "1"], ["3", "5"], ["6", "7"]]
        assert [one["id"] for one in (await desk.get(f"/context/{path}"))[1]["data"]] == [
            f"{kind}_{number}" for number in (1, 5, 6, 7)
        ]
        # It has ended and is not listed, but the list goes on behind it.
        behind = (await desk.get(f"/context/{path}?after={kind}_3"))[1]
        assert [one["id"] for one in behind["data"]] == [f"{kind}_{number}" for number in (5, 6, 7)]
        assert (await desk.get(f"/context/{path}?after={kind}_7"))[1] == {"object": "list", "data": [], "next": None}
        for wrong in (f"after={kind}_0", f"after={kind}_4", "after=%00%ED%A0%80", "after=", "limit=0", "limit=201"):
            assert code_of(await desk.get(f"/context/{path}?{wrong}")) == (400, "invalid_field")


@pytest.mark.parametrize("path", ["grants", "asks"])
async def test_malformed_grant_id_is_not_found(path: str) -> None:
    """Whatever its characters."""
    async with opened() as desk:
        for wrong in ("nobody", "%00", "%ED%A0%80", "%F0%9F%A6%80"):
            assert code_of(await desk.ask("DELETE", f"/context/{path}/{wrong}")) == (404, "grant_not_found")


async def test_expired_ask_is_not_listed_or_revoked() -> None:
    """Nor listed; said again it has the same id."""
    async with opened() as desk:
        await add_ask(desk, 1, ends_s=NOW_S)
        assert (await desk.get("/context/asks"))[1]["data"] == []
        assert code_of(await desk.ask("DELETE", "/context/asks/ask_1")) == (404, "grant_not_found")
        assert await revoked(desk) == []
        await add_ask(desk, 1)
        assert await desk.ask("DELETE", "/context/asks/ask_1") == (204, {})
