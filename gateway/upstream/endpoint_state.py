"""One endpoint of an upstream, and all that decides whether the next request may go to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gateway.contracts.model_names import is_listed_model
from gateway.upstream.breaker import Breaker, BreakerRules
from gateway.upstream.pool import Pool

#: An endpoint that requests a pause gets one of at most this many seconds.
LONGEST_PAUSE_S: Final = 60.0
#: So many failures in a row count as requests under way, at most: an endpoint that fails fast is not idle.
MOST_STRIKES: Final = 5

#: The time for which an endpoint is passed over for a model that it lacks, in seconds: doubled from the first one on.
FIRST_LACK_S: Final = 10.0
LONGEST_LACK_S: Final = 300.0
#: So many models that an endpoint lacks are remembered.
MOST_LACKED: Final = 256

#: Reasons for an endpoint to get no request: health checks failed; its breaker is open; it requested a pause
#: (Retry-After); it has as many requests as it may.
Obstacle = Literal["unhealthy", "open", "pausing", "busy"]


@dataclass(slots=True)
class _Lack:
    """One model: until when the endpoint is passed over for it, and how long that takes the next time."""

    until_s: float
    next_s: float


class MissingModels:
    """The models that one endpoint does not have, although others of its upstream do: it answered 404 for them.

    Requests for such a model pass the endpoint over while another one can take them. After a while one request asks it
    again. Requests for other models go there as before. Times are those of the caller's monotonic clock, in seconds.
    """

    __slots__ = ("models",)

    def __init__(self) -> None:
        #: By name, in the order in which they were found.
        self.models: dict[str, _Lack] = {}

    def add(self, model: str, now_s: float) -> bool:
        """Note that the endpoint lacks a model. Return whether that is new."""
        lack = self.models.get(model)
        if lack is not None:
            lack.until_s, lack.next_s = now_s + lack.next_s, min(2 * lack.next_s, LONGEST_LACK_S)
            return False
        if len(self.models) >= MOST_LACKED:
            del self.models[next(iter(self.models))]
        self.models[model] = _Lack(now_s + FIRST_LACK_S, 2 * FIRST_LACK_S)
        return True

    def remove(self, model: str) -> None:
        """Note that the endpoint has a model. Idempotent."""
        self.models.pop(model, None)

    def is_missing(self, model: str, now_s: float) -> bool:
        """Return whether a request for a model passes the endpoint over."""
        lack = self.models.get(model)
        return lack is not None and now_s < lack.until_s

    def note_trial(self, model: str, now_s: float) -> None:
        """Note that a request tries a model that may be missing: other requests wait for its outcome."""
        lack = self.models.get(model)
        if lack is not None:
            lack.until_s = max(lack.until_s, now_s + FIRST_LACK_S)


class Answers:
    """The answers of one endpoint.

    `good` counts the good ones, and `strikes` its failures since the last of them, those included that may be the fault
    of a request. `last_status` is that of its last answer; "": there was none.
    """

    __slots__ = ("good", "good_besides", "last_status", "strikes")

    def __init__(self) -> None:
        self.good = self.strikes = 0
        self.last_status = ""
        self.good_besides: int | None = None  # of others, at the last failure that went to no other endpoint

    def note_good(self) -> None:
        """Note a good answer."""
        self.good += 1
        self.strikes = 0
        self.good_besides = None

    def is_lone_failure(self, good_besides: int) -> bool:
        """Return whether a failure counts that went to no other endpoint: others answered well since the one before.

        `good_besides` counts their good answers.
        """
        before, self.good_besides = self.good_besides, good_besides
        return before is not None and good_besides > before


class Member:
    """An endpoint in its group. Used on one event loop only.

    `name` is used once in the group: in metrics, logs and pages. `weight` is its share of the requests. `most` is how
    many it may have at a time (None: any number). `models` are the patterns of the models that it serves; empty: all
    of its upstream. `lacking` are those that it was seen not to have.
    """

    __slots__ = (
        "_paused_until_s",
        "answers",
        "breaker",
        "current",
        "healthy",
        "inflight",
        "lacking",
        "limited",
        "models",
        "most",
        "name",
        "pool",
        "weight",
    )

    def __init__(
        self,
        pool: Pool,
        *,
        name: str,
        weight: int = 1,
        most: int | None = None,
        models: Sequence[str] = (),
        breaker: BreakerRules | None = None,
    ) -> None:
        self.pool = pool
        self.name = name
        self.weight = weight
        self.most = most
        self.models = tuple(models)
        self.breaker = Breaker(breaker)
        self.healthy = True
        self.inflight = 0
        self.current = 0  # of the weighted turns (balance.py)
        self._paused_until_s = 0.0
        self.limited = False  # the pause is that of a 429
        self.lacking = MissingModels()
        self.answers = Answers()

    def __repr__(self) -> str:
        return f"<Member {self.name} of {self.pool.endpoint.name!r}, {self.inflight} under way>"

    def serves(self, model: str | None) -> bool:
        """Return whether the endpoint serves a model. Every endpoint serves None, an unknown model."""
        return model is None or not self.models or is_listed_model(model, self.models)

    @property
    def load(self) -> float:
        """Return requests under way, plus recent failures while the breaker is closed, by the weight."""
        strikes = min(self.answers.strikes, MOST_STRIKES) if self.breaker.until_s is None else 0
        return (self.inflight + strikes) / self.weight

    def pause(self, seconds: float, now_s: float, *, limited: bool) -> None:
        """Send the endpoint no request for as long as it requested. `limited`: by a 429."""
        until_s = now_s + min(seconds, LONGEST_PAUSE_S)
        if until_s > self._paused_until_s:
            self._paused_until_s, self.limited = until_s, limited

    def find_obstacle(self, now_s: float, *, whole: bool = True) -> Obstacle | None:
        """Return why it may get no request now; None: it may. `whole`: the client has sent all of the request."""
        if not self.healthy:
            return "unhealthy"
        if self.breaker.until_s is not None and not self.breaker.may_begin(now_s, whole=whole):
            return "open"
        if now_s < self._paused_until_s:
            return "pausing"
        if self.most is not None and self.inflight >= self.most:
            return "busy"
        return None

    def get_wait_s(self, now_s: float) -> float:
        """Return the seconds until breaker and pause may admit a request."""
        return max(self.breaker.get_wait_s(now_s), self._paused_until_s - now_s, 0.0)
