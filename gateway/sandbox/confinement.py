"""The confinement that this machine has: found out by trying, strongest first, and never weaker than requested."""

import dataclasses
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gateway.sandbox.launch_messages import Level, Order
from gateway.sandbox.namespaces import AS_IT_IS
from gateway.sandbox.run import run

Sandbox = Literal["auto", "bubblewrap", "landlock", "none"]

#: The levels that each choice of an operator accepts, strongest first.
ACCEPTED: Final[Mapping[Sandbox, tuple[Level, ...]]] = {
    "auto": ("bubblewrap", "namespaces", "landlock"),
    "bubblewrap": ("bubblewrap",),
    "landlock": ("namespaces", "landlock"),
    "none": ("none",),
}
#: The levels of a read-only command, whatever an operator chose for the others. With namespaces a command has Landlock,
#: too, which is why they come first here; Landlock alone has no scratch folder.
READ_ONLY: Final[tuple[Level, ...]] = ("namespaces", "bubblewrap", "landlock")
_TRIAL_S: Final = 5.0
_TRIAL_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Choice:
    """The level to use, or None and why not."""

    level: Level | None
    reason: str = ""


async def find_strongest(sandbox: Sandbox, order: Order) -> Choice:
    """Try the accepted levels with a command that does nothing, in the folder and with the limits of `order`.

    A trial that was stopped proves nothing about its level, so that none weaker takes its place. Neither does one where
    there is no overlay and a FIFO in the folder.
    """
    reasons: list[str] = []
    for level in READ_ONLY if order.read_only else ACCEPTED[sandbox]:
        reason, decided = await _try_level(replace_level(order, level=level))
        if reason is None:
            return Choice(level)
        reasons.append(f"{level}: {reason}")
        if not decided:
            break
    return Choice(None, "; ".join(reasons))


def replace_level(order: Order, *, level: Level) -> Order:
    """Return the same order at another level."""
    bubblewrap = (shutil.which("bwrap") or "") if level == "bubblewrap" else ""
    return dataclasses.replace(order, level=level, bubblewrap=bubblewrap)


async def _try_level(order: Order) -> tuple[str | None, bool]:
    """Return why the level cannot be used, or None, and whether that is certain."""
    if order.level == "bubblewrap" and not order.bubblewrap:
        return "the program bwrap is not installed", True
    trial = dataclasses.replace(order, argv=("/bin/sh", "-c", ":"), timeout_s=_TRIAL_S)
    finished = await run(trial, stdout_bytes=_TRIAL_BYTES, stderr_bytes=_TRIAL_BYTES, flood_bytes=_TRIAL_BYTES)
    if finished.outcome.end == "exited" and finished.outcome.code == 0:
        return None, True
    said = " ".join((finished.outcome.detail or finished.outcome.end, finished.stderr.strip()[-200:]))
    return said.strip(), finished.outcome.end in ("exited", "unconfined", "not_started") and AS_IT_IS not in said
