"""The queue of an upstream: requests that wait for a place at its endpoints, first come, first served.

No request passes the queue. A place that comes free goes to the first one that it fits.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway.contracts.errors import GatewayError
from gateway.telemetry.metrics import UpstreamTally
from gateway.upstream.endpoint_state import Member

#: The time after which a client may come again when all places are taken, in seconds.
BUSY_RETRY_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """The queue for places at endpoints: at most `size` requests, each for at most `wait_s` seconds."""

    size: int
    wait_s: float


class QueueWaiter(Protocol):
    """A request that waits for a place at an upstream. `passed_over` are the endpoints that it does not wait for."""

    @property
    def sticky(self) -> bytes: ...
    @property
    def model(self) -> str | None: ...
    @property
    def whole(self) -> bool: ...
    @property
    def skip(self) -> Sequence[Member]: ...
    def begin(self) -> Member | None:
        """Take a place at once, wherever there is one. Raises GatewayError: there is none, nor will be."""
        ...

    def use_place(self, member: Member) -> None:
        """Take the free place at this endpoint of the upstream."""
        ...

    def end(self, *, failed: bool | None) -> None:
        """Give the place back."""
        ...

    def build_refusal(self, why: GatewayError) -> GatewayError:
        """Return the error for the request that gets no place."""
        ...


class Places(Protocol):
    """The endpoints of the upstream whose queue it is."""

    @property
    def name(self) -> str: ...
    @property
    def tally(self) -> UpstreamTally: ...
    def choose(
        self, sticky: bytes, model: str | None, *, without: Collection[Member] = (), whole: bool = True
    ) -> Member | None:
        """Return the endpoint for a request, or None: none can take it now."""
        ...

    def is_busy(self, model: str | None, *, without: Collection[Member] = ()) -> bool:
        """Return whether a place will become free."""
        ...

    def build_unavailable_error(self, model: str | None) -> GatewayError:
        """Return the error for a request that no endpoint can take."""
        ...


@dataclass(slots=True, eq=False)
class _Turn:
    """A request in the queue. `future` gets the endpoint where it has its place; None: none will come free here."""

    waiter: QueueWaiter
    future: "asyncio.Future[Member | None]" = field(repr=False)


class PlaceQueue:
    """The queue of one upstream. None for `rules`: no request waits."""

    def __init__(self, rules: QueueRules | None) -> None:
        self._rules = rules
        self.turns: list[_Turn] = []

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def has_room(self) -> bool:
        """Return whether another request may wait."""
        return self._rules is not None and len(self.turns) < self._rules.size

    async def wait(self, waiter: QueueWaiter, places: Places) -> Member:
        """Wait for a place, which the waiter then has. Raises what `Waiter.begin` raises.

        When the endpoints go out meanwhile, the waiter begins anew, as a new request does: a fallback may have a place.
        A waiter that is cancelled leaves the queue, and gives back a place that came at the same moment.
        """
        rules = self._rules
        if rules is None or not self.has_room:
            raise waiter.build_refusal(places.build_unavailable_error(waiter.model))
        try:
            async with asyncio.timeout(rules.wait_s):
                while True:
                    member = await self._await_turn(waiter) or waiter.begin()
                    if member is not None:
                        return member
        except TimeoutError:
            places.tally.refused["wait"] += 1
            text = f"No endpoint of upstream {places.name!r} had a place within {rules.wait_s:g} s (queue.wait); "
            late = GatewayError("overloaded", text + "try again shortly.", retry_after_s=BUSY_RETRY_S)
            raise waiter.build_refusal(late) from None

    async def _await_turn(self, waiter: QueueWaiter) -> Member | None:
        """Wait for a place here, which the waiter then has. Return None if none will become free."""
        turn = _Turn(waiter, asyncio.get_running_loop().create_future())
        self.turns.append(turn)
        try:
            return await turn.future
        except BaseException:
            if turn in self.turns:
                self.turns.remove(turn)
            if turn.future.done() and not turn.future.cancelled():
                waiter.end(failed=None)
            raise

    def serve_waiters(self, places: Places) -> None:
        """Give free places to the waiters in order; wake waiters that can get none."""
        for turn in tuple(self.turns):
            if turn.future.done():  # it was cancelled in this turn of the event loop
                self.turns.remove(turn)
                continue
            waiter = turn.waiter
            member = places.choose(waiter.sticky, waiter.model, without=waiter.skip, whole=waiter.whole)
            if member is not None:
                self.turns.remove(turn)
                waiter.use_place(member)
                turn.future.set_result(member)
            elif not places.is_busy(waiter.model, without=waiter.skip):
                self.turns.remove(turn)
                turn.future.set_result(None)
