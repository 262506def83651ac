"""The store fails at every door: a refused decision never holds, a call that ran is never said not to have run."""

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import aiohttp
import pytest
from gateways import until

from tests.support.gateway_process import GatewayProcess

from .disk import Disk
from .door_faults import Bench, Figures, configured
from .doors import ASKING, DECIDING, words
from .effects import broken_chain, effects
from .talk import CHAT, LONG_S, asking, post, session_with


async def bench(folder: Path, todo: Iterator[int], figures: Figures, *, faults: int, workers: int, seed: int) -> None:
    """One gateway, one case after the other, each at the next door, until so many faults have hit something."""
    folder.mkdir()
    disk, doors = (
        Disk(folder / "gateway.db", folder),
        [*((door, True) for door in ASKING), *((d, False) for d in DECIDING)],
    )
    args = ("--workers", str(workers))
    async with GatewayProcess(json.dumps(configured(folder)), args=args, env=disk.env) as gateway:
        here = Bench(gateway, disk, folder, random.Random(seed), figures)
        while figures.faults.total() < faults:
            number = next(todo)
            door, calls = doors[number % len(doors)]
            try:
                await (here.call if calls else here.decide)(door, f"case-{number}")
            except Exception as error:
                error.add_note(f"case {number}, {door}")
                raise
    if (broken := broken_chain(folder / "gateway.db")) is not None:
        figures.wrong["lost"].append(f"the audit log: {broken}")


async def settled(folder: Path, figures: Figures, *, calls: int, seed: int) -> None:
    """A gateway that died in the middle of so many calls, and people who say what became of them."""
    folder.mkdir()
    disk, names = Disk(folder / "gateway.db", folder), [f"cut-{i}" for i in range(calls)]
    async with GatewayProcess(json.dumps(configured(folder, after_s=300)), env=disk.env) as gateway:
        here = Bench(gateway, disk, folder, random.Random(seed), figures)
        async with session_with(gateway) as session, asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(cut(session, name))
            await until(lambda: len(effects(folder)) == calls, timeout_s=LONG_S)
            await gateway.kill()
        await gateway.start()
        await here.until_unknown(names)
        for name in names:
            await here.settle(name)


async def cut(session: aiohttp.ClientSession, name: str) -> None:
    with suppress(aiohttp.ClientError):
        await post(session, CHAT, asking(words(name)))


async def endured(folder: Path, *, faults: int, lanes: int, calls: int, seed: int) -> Figures:
    figures, todo = Figures(), count()
    try:
        if calls:
            await settled(folder / "cut", figures, calls=calls, seed=seed)
        async with asyncio.TaskGroup() as group:
            for i in range(lanes):
                work = bench(folder / f"lane-{i}", todo, figures, faults=faults, workers=1 + i % 2, seed=seed + i)
                group.create_task(work)
    finally:
        print(f"\n{figures}")
        for kind, cases in figures.wrong.items():
            for case in cases:
                print(f"{kind}: {case}")
    return figures


async def test_store_faults_at_some_api_steps_break_no_guarantee(tmp_path: Path) -> None:
    """The chat and the Responses API in all of their ways."""
    figures = await endured(tmp_path, faults=6, lanes=1, calls=0, seed=1)
    assert not any(figures.wrong.values())


@pytest.mark.crash
async def test_store_faults_at_every_api_step_break_no_guarantee(tmp_path: Path) -> None:
    """0 refused decisions in effect, 0 calls said not to have run that ran, 0 silent repeats, 0 lost."""
    figures = await endured(tmp_path, faults=520, lanes=3, calls=40, seed=7)
    assert set(figures.faults) >= {*ASKING, *(f"decided by {door}" for door in DECIDING)}
    assert not any(figures.wrong.values())
