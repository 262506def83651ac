"""`gateway approvals grants`, `asks` and `revoke`: what is remembered is shown, and taken back."""

import json

import pytest
from api.approval_pages import NOW_S, Desktop, opened
from cli_cases import remote, told

from gateway.cli.operator.grants import list_asks, list_grants, revoke_decisions
from gateway.cli.operator.remote import RemoteError
from gateway.contracts.storage.journal import AskBefore


async def remember(desk: Desktop, *, of: str) -> str:
    """The id of a grant of this kind."""
    await desk.post("/context/approvals/ap_1", {"decision": "approve", "remember": of})
    (one,) = (await desk.get("/context/grants"))[1]["data"]
    return str(one["id"])


async def asking(desk: Desktop, conversation: str) -> str:
    """The id of a conversation that asks before each call."""
    until = NOW_S + 60
    ask = AskBefore(
        id="ask_1", tenant="acme", caller="ann", conversation=conversation, created_s=NOW_S, expires_s=until
    )
    await desk.office.store.put_ask(ask)
    (one,) = (await desk.get("/context/asks"))[1]["data"]
    return str(one["id"])


async def test_grants_of_conversations_are_listed() -> None:
    """The call by its hash, whose they are, who granted them, and until when."""
    async with opened() as desk:
        grant_id = await remember(desk, of="conversation")
        assert await told(lambda: list_grants(remote(desk), as_json=False)) == [
            f"{grant_id}  execute_command",
            f"  sha256        {'a' * 64}",
            "  conversation  c1, of ann",
            "  granted by    bob, 1970-01-01 00:03:20 UTC",
            "  ends          1970-01-31 00:03:20 UTC",
        ]
        (line,) = await told(lambda: list_grants(remote(desk), as_json=True))
        assert json.loads(line)["id"] == grant_id
        assert await told(lambda: list_grants(remote(desk, key="rival"), as_json=False)) == ["none"]


async def test_grants_command_shows_run_grants_ending_with_the_run() -> None:
    """And say which run it is."""
    async with opened() as desk:
        await remember(desk, of="run")
        lines = await told(lambda: list_grants(remote(desk), as_json=False))
        assert lines[2] == "  run           run_1, of ann" and lines[-1] == "  ends          with its run"


async def test_asks_command_lists_conversations_with_ask_before() -> None:
    """Their names are shown, and obeyed by no terminal."""
    async with opened() as desk:
        ask_id = await asking(desk, "c\x1b[2J")
        assert await told(lambda: list_asks(remote(desk), as_json=False)) == [
            f"{ask_id}  asks before each call",
            "  conversation  c\\u{1b}[2J, of ann",
            "  ends          1970-01-01 00:04:20 UTC",
        ]
        assert await told(lambda: list_asks(remote(desk, key="rival"), as_json=True)) == []


async def test_revoke_command_removes_grants_and_asks() -> None:
    """By their ids, in one command; what is not there is told behind what was."""
    async with opened() as desk:
        ids = [await remember(desk, of="conversation"), await asking(desk, "c2")]
        assert await told(lambda: revoke_decisions(remote(desk), ids)) == [f"{each}  revoked" for each in ids]
        assert (await desk.get("/context/grants"))[1]["data"] == (await desk.get("/context/asks"))[1]["data"] == []
        again = revoke_decisions(remote(desk), ids)
        with pytest.raises(RemoteError, match=f"{ids[0]}: .*no grant with this id.*; {ids[1]}: ") as failed:
            await told(lambda: again)
        assert "GET /context/asks" in str(failed.value)


@pytest.mark.parametrize("key", ["agent", "rival", "nobody"])
async def test_revocation_without_the_right_to_decide_changes_nothing(key: str) -> None:
    """Of another tenant, without the scope, or without a key: nothing is gone."""
    async with opened() as desk:
        ids = [await remember(desk, of="conversation"), await asking(desk, "c2"), "../../metrics"]
        with pytest.raises(RemoteError):
            await told(lambda: revoke_decisions(remote(desk, key=key), ids))
        assert len((await desk.get("/context/grants"))[1]["data"]) == 1
        assert len((await desk.get("/context/asks"))[1]["data"]) == 1
