"""The models that one endpoint does not have, although others of its upstream do: it answered 404 for them.

Requests for such a model pass the endpoint over while another one can take them. After a while one request asks it
again. Requests for other models go there as before.
"""

from dataclasses import dataclass
from typing import Final

#: How long an endpoint is passed over at first, and at most, in seconds. Each time is twice as long as the one before.
FIRST_S: Final = 10.0
LONGEST_S: Final = 300.0
#: So many models of an endpoint are remembered.
MODELS: Final = 256


@dataclass(slots=True)
class _Lack:
    """One model: until when the endpoint is passed over for it, and how long that takes the next time."""

    until_s: float
    next_s: float


class MissingModels:
    """The models that one endpoint lacks. Times are those of the caller's monotonic clock, in seconds."""

    __slots__ = ("models",)

    def __init__(self) -> None:
        #: By name, in the order in which they were found.
        self.models: dict[str, _Lack] = {}

    def add(self, model: str, now_s: float) -> bool:
        """Note that the endpoint lacks a model. Return whether that is new."""
        lack = self.models.get(model)
        if lack is not None:
            lack.until_s, lack.next_s = now_s + lack.next_s, min(2 * lack.next_s, LONGEST_S)
            return False
        if len(self.models) >= MODELS:
            del self.models[next(iter(self.models))]
        self.models[model] = _Lack(now_s + FIRST_S, 2 * FIRST_S)
        return True

    def remove(self, model: str) -> None:
        """Note that the endpoint has a model. Idempotent."""
        self.models.pop(model, None)

    def is_missing(self, model: str, now_s: float) -> bool:
        """Return whether a request for a model passes the endpoint over."""
        lack = self.models.get(model)
        return lack is not None and now_s < lack.until_s

    def ask(self, model: str, now_s: float) -> None:
        """Note that a request for a model goes to the endpoint: others wait for what it says."""
        lack = self.models.get(model)
        if lack is not None:
            lack.until_s = max(lack.until_s, now_s + FIRST_S)
