"""The opening of the store at a start, which waits while the server of the store is away."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.config import ConfigError, Problem, Settings
from gateway.contracts.storage.store import Store, StoreAwayError, StoreError
from gateway.registry.loader import PluginProblem
from gateway.registry.stores import build_store
from gateway.server.store.clock import StoreClock

log = logging.getLogger("gateway")

#: The pause between two attempts, in steps after which a signal is noticed; how often the wait is logged.
PAUSE_S: Final = 0.5
STEP_S: Final = 0.1
LOG_S: Final = 10.0


class StartEndedError(Exception):
    """The error that a signal ended the start."""


async def _begin_nothing() -> None:
    """Wait without anything to begin."""


@dataclass(frozen=True, slots=True)
class StoreWait:
    """The wait of a start: `begin` is called once it begins, and `is_ending` returns whether a signal ends it."""

    begin: Callable[[], Awaitable[None]] = _begin_nothing
    is_ending: Callable[[], bool] = bool


async def open_store(settings: Settings, *, folder: Path, clock: StoreClock, wait: StoreWait) -> Store:
    """Open and return the configured store, whose time `clock` has then.

    It waits `store_wait` for a server that is away. Raises ConfigError: a damaged store must not look empty; and
    StartEndedError.
    """
    try:
        store = build_store(settings, folder=folder)
    except PluginProblem as problem:
        raise ConfigError((Problem("configuration", "store", problem.message),)) from None
    try:
        await _open(store, clock, wait, limit_s=settings.store_wait)
    except BaseException as error:
        await store.close()
        if isinstance(error, StoreError):
            raise ConfigError((Problem("configuration", "store", str(error)),)) from None
        raise
    return store


async def _open(store: Store, clock: StoreClock, wait: StoreWait, *, limit_s: float) -> None:
    begin_s = time.monotonic()
    logged_s = float("-inf")
    while True:
        try:
            await store.open()
            await clock.read_store_time(store)
        except StoreAwayError as error:
            now_s = time.monotonic()
            if now_s - begin_s >= limit_s:
                raise StoreError(f"{error}; the start has waited {limit_s:g} s for it (`store_wait`)") from error
            if logged_s == float("-inf"):
                await wait.begin()
            if now_s - logged_s >= LOG_S:
                logged_s = now_s
                left_s = limit_s - (now_s - begin_s)
                log.warning("the server of the store is away, the start waits for it up to %.0f s: %s", left_s, error)
        else:
            if logged_s > float("-inf"):
                log.info("the store is open, %.1f s after the first attempt", time.monotonic() - begin_s)
            return
        for _ in range(round(PAUSE_S / STEP_S)):
            if wait.is_ending():
                raise StartEndedError
            await asyncio.sleep(STEP_S)
