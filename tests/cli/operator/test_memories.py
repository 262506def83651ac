"""`gateway memories list` and `delete`: what is remembered is shown, and deleted."""

import json

import pytest
from api.approval_pages import opened
from api.test_memories import keep
from cli_cases import remote, told

from gateway.cli.main import main
from gateway.cli.operator.memories import delete_memories, list_memories
from gateway.cli.operator.remote import RemoteError

ZOE = {"user": "zoë/1", "key": None}


async def test_memories_are_listed() -> None:
    """All pages of them; no terminal obeys what stands in one."""
    async with opened() as desk:
        await keep(desk, *(f"fact {i}" for i in range(250)), "red\x1b[2J")
        lines = await told(lambda: list_memories(remote(desk), **ZOE, as_json=False))
        assert lines[0].endswith("  1970-01-01 00:00:05 UTC  red\\u{1b}[2J") and len(lines) == 251
        found = [json.loads(line) for line in await told(lambda: list_memories(remote(desk), **ZOE, as_json=True))]
        assert [one["text"] for one in found[1:]] == [f"fact {i}" for i in reversed(range(250))]
        assert await told(lambda: list_memories(remote(desk, key="rival"), **ZOE, as_json=False)) == ["none"]
        assert await told(lambda: list_memories(remote(desk, key="rival"), **ZOE, as_json=True)) == []


async def test_memories_command_shows_the_conversation_of_a_memory() -> None:
    """They are a key's."""
    async with opened() as desk:
        await keep(desk, "tea", user=None, key="bob")
        (line,) = await told(lambda: list_memories(remote(desk), user=None, key=None, as_json=False))
        assert line == "mem_acme_tea  1970-01-01 00:00:05 UTC, in c1  tea"


async def test_memories_are_deleted() -> None:
    """By ids, those that are not there told behind the others; or all of a user."""
    async with opened() as desk:
        await keep(desk, "a", "b", "c")
        with pytest.raises(RemoteError, match=r"mem_x: .*no memory with this id") as failed:
            await told(lambda: delete_memories(remote(desk), ["mem_acme_a", "mem_x", "mem_acme_b"]))
        assert "mem_acme" not in str(failed.value)
        assert await told(lambda: delete_memories(remote(desk), [], of_all=True, **ZOE)) == ["1 deleted"]
        assert await told(lambda: list_memories(remote(desk), **ZOE, as_json=False)) == ["none"]


@pytest.mark.parametrize(
    "words",
    ["delete", "delete --all", "delete --all mem_1 --user a", "delete mem_1 --user a", "list --user a --key b"],
)
def test_memories_rejects_invalid_arguments_with_usage(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Deleting takes ids, or all of somebody who is named."""
    with pytest.raises(SystemExit) as ended:
        main(["memories", *words.split()])
    assert ended.value.code == 2 and "usage: gateway memories" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["list", "delete mem_1", "delete --all --user a", "delete --all --key a"])
def test_memories_command_names_an_unreachable_gateway(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With its address."""
    assert main(["memories", *words.split(), "--url", "http://127.0.0.1:1"]) == 1
    assert "127.0.0.1:1 does not answer" in capsys.readouterr().err
