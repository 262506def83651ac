"""The opening of the store: a start waits for a server that is away, and refuses what stays as it is."""

from pathlib import Path

import pytest

from gateway.aio.clock import SystemClock
from gateway.config import ConfigError, Settings
from gateway.server.store.clock import StoreClock
from gateway.server.store.opening import StartEndedError, StoreWait, open_store
from gateway.testing.ports import free_port


def settings(folder: Path, store: str | None = None, **further: object) -> Settings:
    given = {**({} if store is None else {"store": store}), **further}
    return Settings.model_validate(given, context={"folder": folder})


def clock() -> StoreClock:
    return StoreClock(SystemClock())


async def test_opened_store_is_usable_and_lies_in_the_configuration_folder(tmp_path: Path) -> None:
    """Ready for use, in the folder of the configuration."""
    store = await open_store(settings(tmp_path), folder=tmp_path, clock=clock(), wait=StoreWait())
    assert await store.list_all_prompts() == []
    await store.close()
    assert (tmp_path / "gateway.db").exists()


async def test_unusable_store_prevents_the_start_and_hides_its_password(tmp_path: Path) -> None:
    """A damaged one must not look empty; a server that stays away is named; no password in the text."""
    (tmp_path / "gateway.db").write_bytes(b"this is no database" * 1000)
    for url in ("sqlite:///gateway.db", f"postgresql://user:hunter2@127.0.0.1:{free_port()}/db"):
        with pytest.raises(ConfigError) as failed:
            await open_store(settings(tmp_path, url, store_wait=0), folder=tmp_path, clock=clock(), wait=StoreWait())
        (problem,) = failed.value.problems
        assert problem.path == "store" and "hunter2" not in problem.message


async def test_signal_ends_the_wait_for_a_store(tmp_path: Path) -> None:
    """The wait has begun once by then, whatever the number of attempts."""
    begun = list[int]()

    async def begin() -> None:
        begun.append(1)

    url = f"postgresql://owner@127.0.0.1:{free_port()}/db"
    with pytest.raises(StartEndedError):
        await open_store(
            settings(tmp_path, url),
            folder=tmp_path,
            clock=clock(),
            wait=StoreWait(begin=begin, is_ending=lambda: bool(begun)),
        )
    assert begun == [1]
