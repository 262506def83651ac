"""The faults of a gateway while people decide: of its disk, its processes, its configuration and its tools."""

import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from gateways import workers_of

from .disk import ERRORS, FOREVER, SYNC, WRITE
from .lane import Lane

Fault = Callable[[Lane], Awaitable[None]]
#: Something happens within so many events, or decisions.
SOON, SOMETIME = 8, 40
#: How long a worker is frozen; where it is `TAKEN_S`, only until another one takes up a run.
FROZEN_S, TAKEN_S = (0.5, 8.0, 12.0), 12.0


async def fsync_fails(lane: Lane) -> None:
    await _disk_fails(lane, what=SYNC, skip=lane.chance.randrange(4), times=lane.chance.choice((1, 2, 9, FOREVER)))


async def write_fails(lane: Lane) -> None:
    await _disk_fails(lane, what=WRITE, skip=lane.chance.randrange(9), times=lane.chance.choice((1, 3, FOREVER)))


async def _disk_fails(lane: Lane, *, what: int, skip: int, times: int) -> None:
    await lane.moment(SOMETIME)
    failed = lane.disk.failed
    lane.disk.fail(what=what, error=lane.chance.choice(ERRORS), skip=skip, times=times)
    await lane.until(lambda: lane.disk.failed > failed, within_s=5.0)
    await lane.moment(SOON)
    await killed(lane)


async def fsync_is_slow(lane: Lane) -> None:
    lane.disk.slow(lane.chance.choice((50, 150)))
    await lane.moment(SOMETIME)
    await killed(lane)


async def fsync_lies(lane: Lane) -> None:
    lane.disk.lie()
    await lane.moment(SOMETIME)
    await killed(lane)


async def killed(lane: Lane) -> None:
    """Some go on on the disk that works again."""
    if lane.chance.random() < 0.7:
        await _all_killed(lane)
        lane.disk.heal()
        await lane.gateway.start()
    lane.disk.heal()


async def _all_killed(lane: Lane) -> None:
    workers = workers_of(lane.gateway)
    await lane.gateway.kill()
    for worker in workers:  # they follow their parent, as it were a power cut for them
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)


async def sigterm(lane: Lane) -> None:
    await lane.moment(SOMETIME)
    if lane.chance.random() < 0.3:
        lane.disk.slow(100)
    lane.gateway.signal(signal.SIGTERM)
    assert await lane.gateway.wait() == 0
    lane.disk.heal()
    await lane.gateway.start()


async def worker_dies(lane: Lane) -> None:
    await lane.moment(SOMETIME)
    os.kill(worker_of(lane), signal.SIGKILL)


async def worker_freezes(lane: Lane) -> None:
    """For less than its lease, until another one has taken its runs, or for longer than anybody waits for a lock."""
    await lane.moment(SOMETIME)
    worker = worker_of(lane)
    taken = lane.gateway.read_stderr().count(" goes on (running)")
    frozen_s = lane.chance.choice(FROZEN_S)
    os.kill(worker, signal.SIGSTOP)
    await lane.until(
        lambda: frozen_s == TAKEN_S and lane.gateway.read_stderr().count(" goes on (running)") > taken,
        within_s=frozen_s,
    )
    os.kill(worker, signal.SIGCONT)


def worker_of(lane: Lane) -> int:
    """One of the two, whatever children they have."""
    return lane.chance.choice([one.pid for one in workers_of(lane.gateway) if one.parent == lane.gateway.pid])


async def policy_denies(lane: Lane) -> None:
    await lane.moment(SOMETIME)
    await lane.reload(denying(lane))
    lane.changed_s = time.time()


async def policy_denies_behind_a_restart(lane: Lane) -> None:
    """The configuration that the next process starts with denies the tool."""
    await lane.moment(SOMETIME)
    lane.gateway.folder.joinpath("gateway.yaml").write_text(json.dumps(denying(lane)))
    if lane.chance.random() < 0.5:
        lane.gateway.signal(signal.SIGTERM)
        assert await lane.gateway.wait() == 0
    else:
        await _all_killed(lane)
    lane.changed_s = time.time()
    await lane.gateway.start()


def denying(lane: Lane) -> dict[str, object]:
    config: dict[str, dict[str, object]] = json.loads(lane.gateway.folder.joinpath("gateway.yaml").read_text())
    return {**config, "risk": {**config["risk"], "rules": {"ledger": "deny"}}}


async def allowed_again(lane: Lane) -> None:
    """By a restart: a reload opens nothing that was closed."""
    await lane.gateway.stop()
    file = lane.gateway.folder.joinpath("gateway.yaml")
    config = json.loads(file.read_text())
    del config["risk"]["rules"]
    file.write_text(json.dumps(config))
    await lane.gateway.start()


async def definition_changes(lane: Lane) -> None:
    await lane.moment(SOMETIME)
    lane.folder.joinpath("title.new").write_text(f"Writes a line, {lane.chance.random()}.")
    lane.folder.joinpath("title.new").replace(lane.folder / "title")


async def time_is_over(lane: Lane) -> None:
    """In the middle of the decisions, on a disk that takes its time for each."""
    lane.disk.slow(lane.chance.choice((0, 30)))
    await lane.moment(SOON)
    lane.expire(within_s=lane.chance.uniform(0.0, 0.4))
    await lane.moment(SOMETIME)
    lane.disk.heal()


KINDS: dict[str, Fault] = {
    "failing fsync": fsync_fails,
    "failing write": write_fails,
    "slow fsync": fsync_is_slow,
    "lying fsync": fsync_lies,
    "SIGTERM": sigterm,
    "killed worker": worker_dies,
    "frozen worker": worker_freezes,
    "deny by reload": policy_denies,
    "deny by restart": policy_denies_behind_a_restart,
    "changed definition": definition_changes,
    "expiry": time_is_over,
}
DENIES = frozenset(("deny by reload", "deny by restart"))
