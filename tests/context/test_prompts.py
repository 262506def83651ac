"""Base prompts: where a text comes from, what may change it, and when a change is seen."""

import asyncio

import pytest
from prompts_in_memory import PromptsInMemory, Wall

from gateway.config.values.scalars import parse_name
from gateway.context.prompts import (
    TEXT_LIMIT_BYTES,
    BasePrompts,
    ConfiguredPromptError,
    ListedPrompt,
    PromptError,
    PromptIdError,
    PromptTextError,
)
from gateway.contracts.storage.store import StoredService, StoreError
from gateway.plugins.stores.sqlite import SqliteStore


def prompts(shelf: PromptsInMemory, **configured: str) -> BasePrompts:
    return BasePrompts(configured, shelf, clock=Wall())


async def test_configured_prompt_takes_precedence_over_the_stored_prompt() -> None:
    """An id of neither is None; the configuration wins."""
    shelf = PromptsInMemory()
    await shelf.put_prompt("default", "stored", tenant="acme", now_s=1.0)
    await shelf.put_prompt("mine", "Mine.", tenant="acme", now_s=1.0)
    both = prompts(shelf, default="Configured.")
    assert [await both.read_text(name, tenant="acme") for name in ("default", "mine", "gone")] == [
        "Configured.",
        "Mine.",
        None,
    ]
    assert [(p.id, p.text, p.source) for p in await both.list_page(tenant="acme", limit=9)] == [
        ("default", "Configured.", "configured"),
        ("mine", "Mine.", "stored"),
    ]


async def test_find_returns_prompt_version_and_update_time() -> None:
    """Version and time of the stored, none of the configured."""
    both = prompts(PromptsInMemory(), default="D")
    await both.store_prompt("mine", "one", tenant="acme")
    assert await both.store_prompt("mine", "two", tenant="acme") == ListedPrompt(
        "mine", "two", "stored", 2, 1_700_000_000.5
    )
    assert await both.find("mine", tenant="acme") == ListedPrompt("mine", "two", "stored", 2, 1_700_000_000.5)
    assert await both.find("default", tenant="acme") == ListedPrompt("default", "D", "configured")
    assert await both.find("gone", tenant="acme") is None
    assert await both.find("no/name", tenant="acme") is None


async def test_concurrent_prompt_reads_query_the_store_once() -> None:
    """Whether the prompt is there or not, and however many ask at once."""
    shelf = PromptsInMemory()
    await shelf.put_prompt("mine", "Mine.", tenant="acme", now_s=1.0)
    base = prompts(shelf)
    shelf.gate.clear()
    asking = [asyncio.create_task(base.read_text("mine", tenant="acme")) for _ in range(10)]
    await asyncio.sleep(0)
    shelf.gate.set()
    assert set(await asyncio.gather(*asking)) == {"Mine."}
    assert await base.read_text("gone", tenant="acme") is None
    assert await base.read_text("gone", tenant="acme") is None
    assert shelf.asked == ["mine", "gone"]


async def test_cancelled_prompt_read_does_not_cancel_other_readers() -> None:
    """The next in line asks the store itself."""
    shelf = PromptsInMemory()
    await shelf.put_prompt("mine", "Mine.", tenant="acme", now_s=1.0)
    base = prompts(shelf)
    shelf.gate.clear()
    first, second = (asyncio.create_task(base.read_text("mine", tenant="acme")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    shelf.gate.set()
    assert await second == "Mine."
    assert first.cancelled()


async def test_prompt_change_is_visible_at_once() -> None:
    """The text, and the version that stands for it."""
    base = prompts(PromptsInMemory())
    assert await base.read_text("mine", tenant="acme") is None
    versions = [base.version]
    await base.store_prompt("mine", "one", tenant="acme")
    versions.append(base.version)
    assert await base.read_text("mine", tenant="acme") == "one"
    assert await base.delete("mine", tenant="acme") is True
    versions.append(base.version)
    assert await base.read_text("mine", tenant="acme") is None
    assert await base.delete("mine", tenant="acme") is False
    assert len(set(versions)) == 3


async def test_concurrent_read_does_not_cache_an_outdated_prompt() -> None:
    """What was read before a change is not what is answered after it."""
    shelf = PromptsInMemory()
    base = prompts(shelf)
    await base.store_prompt("mine", "old", tenant="acme")
    shelf.gate.clear()
    reading = asyncio.create_task(base.read_text("mine", tenant="acme"))
    await asyncio.sleep(0)
    changing = asyncio.create_task(base.store_prompt("mine", "new", tenant="acme"))
    await asyncio.sleep(0)
    shelf.gate.set()
    assert await reading == "old"
    await changing
    assert await base.read_text("mine", tenant="acme") == "new"


async def test_prompt_change_by_another_process_is_visible_after_refresh() -> None:
    """The generation of the store tells; without a change nothing is read again."""
    shelf = PromptsInMemory()
    base = prompts(shelf)
    await base.refresh()
    assert await base.read_text("mine", tenant="acme") is None
    await shelf.put_prompt("mine", "theirs", tenant="acme", now_s=1.0)
    version = base.version
    assert await base.refresh() is True
    assert base.version != version
    assert await base.read_text("mine", tenant="acme") == "theirs"
    asked = len(shelf.asked)
    assert await base.refresh() is False
    assert await base.read_text("mine", tenant="acme") == "theirs"
    assert len(shelf.asked) == asked


async def test_prompt_version_changes_only_when_prompts_change() -> None:
    """Services and grants share the store's generation: whatever was made of prompts still holds."""
    store = SqliteStore(":memory:")
    await store.open()
    base = BasePrompts({}, store, clock=Wall())
    await store.put_prompt("mine", "text", tenant="acme", now_s=1.0)
    await base.refresh()
    version = base.version
    assert await store.put_service(StoredService(name="time", updated_s=2.0), expected=0)
    assert await base.refresh() is False and base.version == version
    assert await store.delete_prompt("mine", tenant="acme") and await store.put_prompt(
        "mine", "other", tenant="acme", now_s=3.0
    )
    assert await base.refresh() is True and base.version != version
    await store.close()


async def test_configured_prompts_cannot_be_changed() -> None:
    """Neither stored over nor deleted; the text says where to change them."""
    shelf = PromptsInMemory()
    base = prompts(shelf, default="D")
    for change in (base.store_prompt("default", "x", tenant="acme"), base.delete("default", tenant="acme")):
        with pytest.raises(ConfiguredPromptError, match=r"prompt 'default' stands in the configuration: change it"):
            await change
    assert shelf.changes == 0
    assert issubclass(ConfiguredPromptError, PromptError) and issubclass(PromptError, ValueError)


@pytest.mark.parametrize("prompt_id", ["", ".x", "-x", "a/b", "a b", "a\n", "ä", "x" * 65, "../x", "a\0"])
async def test_prompt_id_must_be_a_valid_name(prompt_id: str) -> None:
    """As in the configuration; what cannot be a prompt is not even looked for."""
    with pytest.raises(ValueError, match="letters, digits"):
        parse_name(prompt_id)
    shelf = PromptsInMemory()
    base = prompts(shelf)
    with pytest.raises(PromptIdError, match="letters, digits"):
        await base.store_prompt(prompt_id, "x", tenant="acme")
    assert await base.read_text(prompt_id, tenant="acme") is None
    assert await base.delete(prompt_id, tenant="acme") is False
    assert (shelf.asked, shelf.changes) == ([], 0)


async def test_prompt_text_over_the_byte_limit_is_rejected() -> None:
    """In bytes of UTF-8, and what fits is kept."""
    base = prompts(PromptsInMemory())
    await base.store_prompt("mine", "x" * TEXT_LIMIT_BYTES, tenant="acme")
    with pytest.raises(PromptTextError, match="262146 bytes"):
        await base.store_prompt("mine", "字" * (TEXT_LIMIT_BYTES // 3 + 1), tenant="acme")
    assert len(await base.read_text("mine", tenant="acme") or "") == TEXT_LIMIT_BYTES


async def test_prompt_cache_is_bounded() -> None:
    """A text larger than all of it is read each time; thousands of ids that do not exist cost little."""
    shelf = PromptsInMemory()
    base = prompts(shelf)
    await shelf.put_prompt("huge", "x" * (5 << 20), tenant="acme", now_s=1.0)
    assert (
        len(await base.read_text("huge", tenant="acme") or "")
        == len(await base.read_text("huge", tenant="acme") or "")
        == 5 << 20
    )
    assert shelf.asked == ["huge", "huge"]
    for i in range(40_000):
        assert await base.read_text(f"id{i}", tenant="acme") is None
    assert await base.read_text("id0", tenant="acme") is None
    assert shelf.asked.count("id0") == 2


async def test_store_failure_is_raised_and_not_cached() -> None:
    """StoreError; afterwards the store is asked again, also where a change may have happened before it failed."""
    shelf = PromptsInMemory()
    base = prompts(shelf)
    assert await base.read_text("mine", tenant="acme") is None
    shelf.broken = True
    with pytest.raises(StoreError):
        await base.read_text("other", tenant="acme")
    with pytest.raises(StoreError):
        await base.store_prompt("mine", "x", tenant="acme")
    shelf.broken = False
    assert await base.read_text("mine", tenant="acme") == "x"


async def test_a_stored_prompt_belongs_to_a_tenant() -> None:
    """No other tenant reads, lists, changes or deletes it; the same id may be another prompt there."""
    base = prompts(PromptsInMemory(), default="D")
    await base.store_prompt("mine", "of acme", tenant="acme")
    assert await base.read_text("mine", tenant="rival") is None
    assert await base.find("mine", tenant="rival") is None
    assert [one.id for one in await base.list_page(tenant="rival", limit=9)] == ["default"]
    assert await base.delete("mine", tenant="rival") is False
    await base.store_prompt("mine", "of rival", tenant="rival")
    assert await base.read_text("mine", tenant="acme") == "of acme"
    assert await base.read_text("mine", tenant="rival") == "of rival"
    assert await base.delete("mine", tenant="rival") is True
    assert await base.read_text("mine", tenant="acme") == "of acme"
