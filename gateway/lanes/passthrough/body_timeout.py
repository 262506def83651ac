"""The time that a client may take over the body of its request."""

from typing import Final

#: A body that arrives more slowly than this, in bytes a second, uses up its time as if it stood still.
LEAST_RATE: Final = 100


class BodyPace:
    """One body's time: `idle_s` to begin with, which passes while the client could send, and comes back with its bytes.

    So a body that stands still is late after `idle_s`, and one that drips below the least rate is, too, a little later.
    """

    __slots__ = ("_left_s", "_looked_s", "_received_bytes")

    def __init__(self, now_s: float, *, idle_s: float, received_bytes: int) -> None:
        self._left_s = idle_s
        self._looked_s = now_s
        self._received_bytes = received_bytes

    def is_late(self, now_s: float, *, idle_s: float, received_bytes: int, least_rate: int = LEAST_RATE) -> bool:
        """Return whether the client's time is over, given all the bytes of the body that came until now.

        `least_rate` is in bytes a second.
        """
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        came, self._received_bytes = received_bytes - self._received_bytes, received_bytes
        self._left_s = min(self._left_s - passed_s + came / least_rate, idle_s)
        return self._left_s < 0

    def excuse_elapsed_time(self, now_s: float) -> None:
        """Do not charge the client for the time since the last look: it was paused, or waited to be invited."""
        self._looked_s = now_s


def format_too_slow(idle_s: float, least_rate: int = LEAST_RATE) -> str:
    """Return the error text for a client whose body is late."""
    setting = "" if least_rate == LEAST_RATE else " (limits.body_rate)"
    return (
        f"The request body stopped arriving, or arrives too slowly: it may stand still for {idle_s:g} s "
        f"(limits.body_idle), and needs {least_rate} bytes a second{setting}."
    )
