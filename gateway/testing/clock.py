"""A clock that moves only on demand, for code that takes its clock as an argument."""


class ManualClock:
    """A clock of tests. Called, it returns seconds, as `time.monotonic` does; it is a `gateway.plugin.Clock`, too."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def __repr__(self) -> str:
        return f"<ManualClock {self._now_s} s>"

    def __call__(self) -> float:
        return self._now_s

    def monotonic(self) -> float:
        return self._now_s

    def time(self) -> float:
        """Return the same seconds, as Unix time."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Forward only: code under test relies on a monotonic clock."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot go back by {-seconds} s: make a new ManualClock")
        self._now_s += seconds
