"""The clock that everything but tests uses."""

import time


class SystemClock:
    """The clock that everything but tests uses."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()
