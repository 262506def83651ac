"""The pages of memories, asked over HTTP: whose they are, in pages, and their end."""

from collections.abc import Sequence

import pytest

from gateway.contracts.storage.store import Memory, get_memory_owner

from .approval_pages import Desktop, Json, code_of, opened

PATH = "/context/memories"


async def keep(desk: Desktop, *texts: str, user: str | None = "zoë/1", key: str = "ann", tenant: str = "acme") -> None:
    for text in texts:
        owner = get_memory_owner(user=user, key=key)
        memory = Memory(f"mem_{tenant}_{text}", tenant, owner, None if user else "c1", text, 5.0)
        assert await desk.office.store.remember(memory, limit=500)


async def texts_of(desk: Desktop, query: str, *, key: str = "agent") -> list[str]:
    status, answer = await desk.get(PATH + query, key=key)
    assert (status, answer["object"], answer["next"]) == (200, "list", None)
    return [one["text"] for one in answer["data"]]


async def test_memories_of_a_user_are_listed() -> None:
    """Those of the tenant, to any of its keys; the name comes in the query, or as in a chat."""
    async with opened() as desk:
        await keep(desk, "tea", "cats")
        await keep(desk, "theirs", tenant="other")
        (first, _) = (await desk.get(f"{PATH}?user=zo%C3%AB/1"))[1]["data"]
        assert first == {
            "id": "mem_acme_cats",
            "object": "memory",
            "user": "zoë/1",
            "key": None,
            "conversation": None,
            "text": "cats",
            "created_at": 5.0,
        }
        assert await texts_of(desk, "?user=zo%C3%AB/1", key="root") == ["cats", "tea"]
        assert await texts_of(desk, "?user=zo%C3%AB/1", key="rival") == ["theirs"]
        assert await texts_of(desk, "?user=nobody") == await texts_of(desk, "") == []
        headers = {"X-Gateway-Key": "agent", "X-Context-User": "zoë/1"}
        async with desk.session.get(desk.url(PATH), headers=headers) as response:
            assert [one["text"] for one in (await response.json())["data"]] == ["cats", "tea"]


async def test_memories_of_another_key_require_admin_scope() -> None:
    """Another key's are shown to who may do everything, of this tenant."""
    async with opened() as desk:
        await keep(desk, "tea", user=None)
        await keep(desk, "a user who is called like a key", user="ann")
        (one,) = (await desk.get(PATH, key="agent"))[1]["data"]
        assert (one["text"], one["user"], one["key"], one["conversation"]) == ("tea", None, "ann", "c1")
        assert await texts_of(desk, "?key=ann") == await texts_of(desk, "?key=ann", key="root") == ["tea"]
        assert await texts_of(desk, "", key="boss") == []
        assert code_of(await desk.get(f"{PATH}?key=ann")) == (403, "scope_missing")
        assert code_of(await desk.get(f"{PATH}?key=ann", key="rival")) == (403, "scope_missing")


async def pages(desk: Desktop, query: str) -> list[list[str]]:
    found: list[list[str]] = []
    after: str | None = ""
    while after is not None:
        _, answer = await desk.get(f"{PATH}?user=zo%C3%AB/1{query}" + (f"&after={after}" if after else ""))
        found.append([one["text"] for one in answer["data"]])
        after = answer["next"]
    return found


async def test_memory_list_is_paginated() -> None:
    """Each memory once, whatever is deleted meanwhile."""
    async with opened() as desk:
        await keep(desk, *"abcde")
        assert await pages(desk, "&limit=2") == [["e", "d"], ["c", "b"], ["a"]]
        assert await pages(desk, "") == [["e", "d", "c", "b", "a"]]
        _, first = await desk.get(f"{PATH}?user=zo%C3%AB/1&limit=2")
        for one in first["data"]:
            assert await desk.ask("DELETE", f"{PATH}/{one['id']}") == (204, {})
        _, second = await desk.get(f"{PATH}?user=zo%C3%AB/1&limit=3&after={first['next']}")
        assert ([one["text"] for one in second["data"]], second["next"]) == (["c", "b", "a"], None)


async def test_one_memory_is_deleted() -> None:
    """By its id, in its tenant; and never that of another."""
    async with opened() as desk:
        await keep(desk, "tea", "cats")
        path = f"{PATH}/mem_acme_tea"
        assert code_of(await desk.ask("DELETE", path, key="rival")) == (404, "memory_not_found")
        assert code_of(await desk.ask("DELETE", path, key="reader")) == (403, "scope_missing")
        assert await desk.ask("DELETE", path, key="agent") == (204, {})
        assert code_of(await desk.ask("DELETE", path, key="agent")) == (404, "memory_not_found")
        assert await texts_of(desk, "?user=zo%C3%AB/1") == ["cats"]


async def test_all_memories_of_a_user_are_deleted() -> None:
    """However many; nobody else's, and none where nobody is named."""
    async with opened() as desk:
        await keep(desk, *map(str, range(120)))
        await keep(desk, "tea", user=None)
        await keep(desk, "theirs", tenant="other")
        assert code_of(await desk.ask("DELETE", PATH)) == (400, "missing_field")
        status, answer = await desk.ask("DELETE", f"{PATH}?user=zo%C3%AB/1", key="agent")
        assert (status, answer) == (200, {"object": "memories.deleted", "deleted": 120})
        assert await texts_of(desk, "?user=zo%C3%AB/1") == []
        assert await texts_of(desk, "") == ["tea"] and await texts_of(desk, "?user=zo%C3%AB/1", key="rival") == [
            "theirs"
        ]
        assert (await desk.ask("DELETE", f"{PATH}?key=ann", key="root"))[1]["deleted"] == 1


WRONG: Sequence[tuple[str, str, str]] = [
    ("GET", "?user=a&key=b", "invalid_field"),
    ("GET", "?user=", "invalid_field"),
    ("GET", "?name=a", "unknown_field"),
    ("GET", "?user=a&after=x", "invalid_field"),
    ("GET", "?user=a&limit=201", "invalid_field"),
    ("DELETE", "?user=a&limit=1", "unknown_field"),
    ("DELETE", "/mem_1?user=a", "unknown_field"),
]


@pytest.mark.parametrize(("method", "rest", "code"), WRONG)
async def test_invalid_memory_request_is_refused_and_deletes_nothing(method: str, rest: str, code: str) -> None:
    """And deletes nothing."""
    async with opened() as desk:
        await keep(desk, "tea", user="a")
        answer: tuple[int, Json] = await desk.ask(method, PATH + rest)
        assert code_of(answer) == (400, code)
        assert await texts_of(desk, "?user=a") == ["tea"]
