"""Reading the configuration again, for a limited time: a file of it may be on a file system that does not answer.

A thread cannot be stopped while the system waits. So it is one that holds up neither further reloads nor the end of the
process, and while it waits no other one is begun.
"""

import threading
from collections.abc import Callable
from typing import Final

from gateway.config import ConfigError, LoadedConfig, Problem

#: So long the files of a configuration may take to be read, in seconds.
READ_S: Final = 10.0
#: How often a wait is looked at.
_LOOK_S: Final = 0.05


class BoundedLoad:
    """A function that loads a configuration, with a limit to its time.

    `is_ending` returns whether the process has to end, so that nothing is waited for. Call it in a thread, or where
    waiting holds up no other work. Raises ConfigError if the time is over, and what `load` raises.
    """

    def __init__(
        self, load: Callable[[], LoadedConfig], *, is_ending: Callable[[], bool], limit_s: float = READ_S
    ) -> None:
        self._load = load
        self._is_ending = is_ending
        self._limit_s = limit_s
        self._thread: threading.Thread | None = None

    def __call__(self) -> LoadedConfig:
        if self._thread is not None and self._thread.is_alive():
            raise _build_late_error(
                "an earlier reload still waits for a file", "end what holds it up, or restart the gateway"
            )
        outcome: list[LoadedConfig | BaseException] = []

        def run() -> None:
            try:
                outcome.append(self._load())
            except BaseException as error:
                outcome.append(error)

        self._thread = threading.Thread(target=run, name="configuration", daemon=True)
        self._thread.start()
        for _ in range(max(1, round(self._limit_s / _LOOK_S))):
            self._thread.join(_LOOK_S)
            if not self._thread.is_alive() or self._is_ending():
                break
        if not outcome:
            hangs = f"it was not read within {self._limit_s:g} s, because a file or folder of it does not answer"
            raise _build_late_error(hangs, "look at its file system, then send SIGHUP again")
        (found,) = outcome
        if isinstance(found, BaseException):
            raise found
        return found


def _build_late_error(what: str, step: str) -> ConfigError:
    return ConfigError((Problem("configuration", "", f"{what}: {step}"),))
