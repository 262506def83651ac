"""One endpoint of an upstream, and all that decides whether the next request may go to it."""

from collections.abc import Sequence
from typing import Final, Literal

from gateway.contracts.model_names import is_listed_model
from gateway.upstream.breaker import Breaker, BreakerRules
from gateway.upstream.missing_models import MissingModels
from gateway.upstream.pool import Pool

#: An endpoint that asks for a pause gets one of at most this many seconds.
LONGEST_PAUSE_S: Final = 60.0
#: So many failures in a row count as requests under way, at most: an endpoint that fails fast is not idle.
MOST_STRIKES: Final = 5

#: Reasons for an endpoint to get no request: health checks failed; its breaker is open; it asked for a pause
#: (Retry-After); it has as many requests as it may.
Obstacle = Literal["unhealthy", "open", "pausing", "busy"]


class Member:
    """An endpoint in its group. Used on one event loop only.

    `name` is used once in the group: in metrics, logs and pages. `weight` is its share of the requests. `most` is how
    many it may have at a time (None: any number). `models` are the patterns of the models that it serves; empty: all
    of its upstream. `lacking` are those that it was seen not to have.

    `good` counts its good answers, and `strikes` its failures since the last one, those included that may be the fault
    of a request. `last_status` is that of its last answer; "": there was none.
    """

    __slots__ = (
        "_good_besides",
        "_paused_until_s",
        "breaker",
        "current",
        "good",
        "healthy",
        "inflight",
        "lacking",
        "last_status",
        "limited",
        "models",
        "most",
        "name",
        "pool",
        "strikes",
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
        self.good = self.strikes = 0
        self.last_status = ""
        self._good_besides: int | None = None  # of others, at the last failure that went to no other endpoint

    def __repr__(self) -> str:
        return f"<Member {self.name} of {self.pool.endpoint.name!r}, {self.inflight} under way>"

    def serves(self, model: str | None) -> bool:
        """Return whether it serves a model; None, a model that nobody knows, is served by all."""
        return model is None or not self.models or is_listed_model(model, self.models)

    @property
    def load(self) -> float:
        """Return what is under way for its weight. Failures count, too, until a breaker lets a request ask for more."""
        strikes = min(self.strikes, MOST_STRIKES) if self.breaker.until_s is None else 0
        return (self.inflight + strikes) / self.weight

    def answered_well(self) -> None:
        """Note a good answer."""
        self.good += 1
        self.strikes = 0
        self._good_besides = None

    def is_lone_failure(self, good_besides: int) -> bool:
        """Return whether a failure counts that went to no other endpoint: others answered well since the one before.

        `good_besides` counts their good answers.
        """
        before, self._good_besides = self._good_besides, good_besides
        return before is not None and good_besides > before

    def pause(self, seconds: float, now_s: float, *, limited: bool) -> None:
        """Give it no request for so long, as it asked for. `limited`: by a 429."""
        until_s = now_s + min(seconds, LONGEST_PAUSE_S)
        if until_s > self._paused_until_s:
            self._paused_until_s, self.limited = until_s, limited

    def obstacle(self, now_s: float, *, whole: bool = True) -> Obstacle | None:
        """Return why it may get no request now; None: it may. `whole`: the client has sent all of the request."""
        if not self.healthy:
            return "unhealthy"
        if self.breaker.until_s is not None and not self.breaker.admits(now_s, whole=whole):
            return "open"
        if now_s < self._paused_until_s:
            return "pausing"
        if self.most is not None and self.inflight >= self.most:
            return "busy"
        return None

    def waits_s(self, now_s: float) -> float:
        """Return the seconds until breaker and pause may admit a request."""
        return max(self.breaker.waits_s(now_s), self._paused_until_s - now_s, 0.0)
