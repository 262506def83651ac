"""Gateways that share limits on one store and a clock of the test, each with a keeper that beats when it is told."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError, UndecidedError
from gateway.contracts.storage.quota import QuotaAnswer, QuotaStore, ShareRequest
from gateway.contracts.storage.store import StoreError
from gateway.limits.budgets import Budgets, Counted
from gateway.limits.limit_rule import build_key_id
from gateway.limits.reservation import Reservation
from gateway.limits.share_client import ShareClient
from gateway.limits.share_keeper import ShareKeeper
from gateway.testing.clock import ManualClock

from .limiting import BEGAN_S, NAMES, Workers, caller, spend_today

CI: Counted = ("key", build_key_id("team", "ci"))


class SharingClock(ManualClock):
    """The clock of all gateways, and of the store."""

    def monotonic(self) -> float:
        return self()

    def time(self) -> float:
        return self()


class FlakyStore:
    """A store that counts calls, and fails while it is told to."""

    def __init__(self, store: QuotaStore) -> None:
        self._store = store
        self.calls = 0
        self.requests = 0
        self.fails = False
        self.loses_answers = False

    async def share_quota(
        self, gateway: str, requests: Sequence[ShareRequest], *, turn: int, now_s: float
    ) -> QuotaAnswer:
        self.calls += 1
        self.requests += len(requests)
        if self.fails:
            raise StoreError("the store is away")
        answer = await self._store.share_quota(gateway, requests, turn=turn, now_s=now_s)
        if self.loses_answers:
            raise StoreError("the answer was lost")
        return answer


class SharingGateway:
    """One gateway: its workers, and its keeper."""

    def __init__(self, place: FlakyStore, clock: SharingClock, workers: int) -> None:
        budgets = Budgets(lambda: "USD", guess=lambda _scope, _name: 1e-6)
        self.workers = Workers(workers, clock=clock, budgets=budgets, has_shares=True)
        self.limiter = self.workers.limiters[0]
        self._place = place
        self._clock = clock
        self.keeper = self.make_keeper()

    @property
    def shares(self) -> ShareClient:
        shares = self.workers.meters[0].shares
        assert shares is not None
        return shares

    def make_keeper(self) -> ShareKeeper:
        workers = self.workers
        return ShareKeeper(self._place, workers.meters[0], workers.budgets, shares=self.shares, clock=self._clock)

    def share(self, slot: int, whose: Caller) -> int:
        """Return the share of a limit that the workers may use now."""
        (rule,) = self.limiter.list_caller_rules(whose)
        return int(rule.meter.share_words[slot])


class Sharing:
    """Some gateways with the same limits of one key."""

    def __init__(self, store: QuotaStore, count: int = 3, *, workers: int = 1, **limits: float) -> None:
        self.clock = SharingClock(BEGAN_S)
        self.place = FlakyStore(store)
        self.caller = caller(**limits)
        self._workers = workers
        self.gateways = [SharingGateway(self.place, self.clock, workers) for _ in range(count)]

    async def start(self) -> None:
        """Let all gateways tell the store of themselves, as they do when they start."""
        for gateway in self.gateways:
            await gateway.keeper.report_first()

    async def add(self) -> SharingGateway:
        """A gateway that comes."""
        self.gateways.append(gateway := SharingGateway(self.place, self.clock, self._workers))
        await gateway.keeper.report_first()
        return gateway

    async def beat(self, pass_s: float = 0.25) -> None:
        """Let time pass, and all gateways beat: again at once, if others lack something."""
        self.clock.advance(pass_s)
        for gateway in self.gateways:
            await gateway.keeper.exchange_shares()
            await gateway.keeper.exchange_shares()

    async def take(
        self, gateway: SharingGateway, tokens: int | None = None, *, worker: int = 0
    ) -> Reservation | GatewayError:
        """The places of a request, which waits for an answer of its keeper, or its refusal."""
        limiter = gateway.workers.limiters[worker]
        while True:
            try:
                return limiter.reserve_places(limiter.list_caller_rules(self.caller), tokens, guess=tokens)
            except UndecidedError as undecided:
                await gateway.keeper.exchange_shares()
                while not undecided.answered.done():
                    await self.beat(0.06)
            except GatewayError as error:
                return error

    async def admitted(self, gateway: SharingGateway, count: int, tokens: int | None = None) -> list[Reservation]:
        """The places of those of so many requests that got some."""
        found = [await self.take(gateway, tokens) for _ in range(count)]
        return [one for one in found if isinstance(one, Reservation)]

    def know_spent(self, tokens: int) -> None:
        """Let all gateways read that so much was used of the budget, which all had stored before."""
        sums = spend_today(tokens, tokens / 1e6)
        for gateway in self.gateways:
            workers = gateway.workers
            for meters in workers.meters:
                meters.mark_used_until_now()()
                meters.mark_stored_until_now(workers.budgets)()
            workers.budgets.replace_sums({CI: sums}, names=NAMES, currency="USD")


@contextmanager
def failing(place: FlakyStore) -> Iterator[None]:
    place.fails = True
    yield
    place.fails = False


async def share_limits(store: QuotaStore, count: int = 3, *, workers: int = 1, **limits: float) -> Sharing:
    """Gateways that have started."""
    sharing = Sharing(store, count, workers=workers, **limits)
    await sharing.start()
    return sharing
