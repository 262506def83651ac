"""The pages of what is remembered, asked over HTTP."""

from gateway.journal import AskBefore
from gateway.runs.remembered import REMEMBERED_S

from .office import NOW_S, Desktop, code_of, opened


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


async def test_a_grant_of_a_conversation_ends_by_itself() -> None:
    """Its end is shown; afterwards it is not there, and there is nothing to take back."""
    async with opened() as desk:
        await desk.post("/context/approvals/ap_1", {"decision": "approve", "remember": "conversation"})
        (one,) = (await desk.get("/context/grants"))[1]["data"]
        assert one["expires_at"] == NOW_S + REMEMBERED_S
        desk.office.clock.now_s = one["expires_at"]
        assert (await desk.get("/context/grants"))[1]["data"] == []
        assert code_of(await desk.ask("DELETE", f"/context/grants/{one['id']}")) == (404, "grant_not_found")


async def test_conversations_that_ask_before_each_call_are_listed_and_taken_back() -> None:
    """Whatever a conversation is called; by a key that may decide, in its own tenant, with a line in the audit log."""
    async with opened() as desk:
        whose = {"tenant": "acme", "caller": "ann", "created_s": NOW_S, "expires_s": NOW_S + 60}
        for conversation in ("a/b?c#d", "c2"):
            await desk.office.store.ask_before(AskBefore(conversation=conversation, **whose))  # type: ignore[arg-type]
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
