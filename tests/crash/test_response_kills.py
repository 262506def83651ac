"""A response outlives its gateway: nothing is lost, nothing happens twice, and whoever comes back reads on."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest

from tests.support.gateway_process import GatewayProcess

from .asker import Way
from .disk import Disk
from .effects import broken_chain, settings
from .response_lane import By, Fault, Figures, Lane, Moment

WAYS: Sequence[Way] = (
    *(Way(), Way(by_rest=True), Way(held=True)),
    *(Way(thinks=True), Way(by_rest=True, held=True), Way(held=True, thinks=True)),
)
FOREGROUND: Sequence[Way] = (Way(background=False), Way(background=False, by_rest=True))
KILL, BESIDE, STOP, FREEZE = Fault.__args__  # type: ignore[attr-defined]


async def swept(folder: Path, ways: Sequence[Way], *lanes: tuple[Fault, By, int]) -> Figures:
    """So many points of each kind, spread over a whole run, in the ways in turns; each kind has gateways of its own."""
    figures, first = Figures(), 0
    async with asyncio.TaskGroup() as group:
        for fault, by, count in lanes:
            moments = [Moment(by, (k + 0.5) / count) for k in range(count)]
            todo = [(moment, first + k, ways[k % len(ways)]) for k, moment in enumerate(moments)]
            group.create_task(lane(folder / f"lane-{first}", fault, todo, figures))
            first += count
    print(f"\n{figures}")
    for kind, cases in figures.wrong.items():
        for case in cases:
            print(f"{kind}: {case}")
    assert figures.points.total() == first
    return figures


async def lane(folder: Path, fault: Fault, todo: Sequence[tuple[Moment, int, Way]], figures: Figures) -> None:
    """One gateway, or two on one store where the other one takes over."""
    folder.mkdir()
    config = json.dumps(settings(folder, limits={"drain": "1s"}))
    disk = Disk(folder / "gateway.db", folder) if todo[0][0].by == "writes" else None
    async with GatewayProcess(config, env=disk.env if disk else None) as gateway, aiohttp.ClientSession() as session:
        here = Lane(folder, gateway, None, disk, session, fault, figures)
        if fault in (BESIDE, FREEZE):
            async with GatewayProcess(config) as here.other:
                for one in todo:
                    await here.disturbed(*one)
        else:
            for one in todo:
                await here.disturbed(*one)
    if (broken := broken_chain(folder / "gateway.db")) is not None:
        figures.wrong["other"].append(broken)


async def test_background_response_survives_a_gateway_kill(tmp_path: Path) -> None:
    """At a few points, with a gateway that is started again, and with another one beside it."""
    figures = await swept(tmp_path, WAYS, (KILL, "events", 4), (BESIDE, "time", 3), (FREEZE, "events", 2))
    assert not any(figures.wrong.values())


async def test_foreground_response_reports_its_state_after_a_crash(tmp_path: Path) -> None:
    """In the foreground, at a few points."""
    figures = await swept(tmp_path, FOREGROUND, (KILL, "events", 2), (BESIDE, "time", 2))
    assert not any(figures.wrong.values())


@pytest.mark.crash
async def test_background_response_survives_kills_at_a_hundred_points(tmp_path: Path) -> None:
    """0 lost, 0 repeated, 0 unapproved, 0 untold; the events before and behind a kill are those of one stream."""
    lanes = ((KILL, "events", 30), (KILL, "time", 20), (KILL, "writes", 30), (BESIDE, "time", 30))
    assert not any((await swept(tmp_path, WAYS, *lanes)).wrong.values())


@pytest.mark.crash
async def test_background_response_survives_a_stopped_or_frozen_gateway(tmp_path: Path) -> None:
    """The same with SIGTERM, and with a gateway that goes on after another one has taken its runs."""
    lanes = ((STOP, "events", 15), (STOP, "time", 15), (FREEZE, "events", 15), (FREEZE, "time", 15))
    assert not any((await swept(tmp_path, WAYS, *lanes)).wrong.values())


@pytest.mark.crash
async def test_foreground_response_reports_its_state_at_many_kill_points(tmp_path: Path) -> None:
    """In the foreground: what it was asked, what ran, what it was answered."""
    lanes = ((KILL, "events", 20), (KILL, "writes", 20), (BESIDE, "time", 20))
    assert not any((await swept(tmp_path, FOREGROUND, *lanes)).wrong.values())
