"""Runs under way and just finished, apart from the clients that read them.

A client that repeats its request after a broken connection joins its run instead of starting another: no tool is run
twice. A run that has done nothing yet ends with its client; one that has waits a little for it to come back.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from gateway.contracts import Clock, Exchange, Handler, Intent, Json
from gateway.errors import GatewayError

#: How long a run with effects goes on without its client, and how long a finished or left run can be joined.
GRACE_S, JOINABLE_S = 1.0, 60.0
#: Finished runs that are kept; the oldest go first.
KEPT = 1000
#: Mark of a chunk that says: the next thing has an effect. Never sent to a client.
EFFECTS = "effects"


@dataclass(frozen=True, slots=True)
class Asking:
    """What makes two requests the same, and what a client says about repeating one."""

    fingerprint: str
    idempotency_key: tuple[str, str, str] | None  # with tenant and caller
    repeats: bool


def fingerprint(*, tenant: str, caller: str, path: str, steering: Mapping[str, str], content: bytes) -> str:
    """SHA-256 (hex) over caller, path, X-Context-* headers and the raw body."""
    digest = hashlib.sha256()
    for part in (tenant, caller, path, *(f"{k}={v}" for k, v in sorted(steering.items()))):
        data = part.encode(errors="surrogateescape")
        digest.update(b"%d:" % len(data) + data)
    digest.update(content)
    return digest.hexdigest()


class LiveRun:
    """One run and its answer so far."""

    def __init__(self, exchange: Exchange, asking: Asking, *, now_s: float) -> None:
        self.exchange = exchange
        self.asking = asking
        self.created_s = now_s
        self.chunks: list[Json] = []
        self.intent: Intent | None = None
        self.error: BaseException | None = None
        self.done = False
        self.interrupted = False
        self.effects = False
        self.clients = 0
        self.cut = False  # its last client left before the answer was whole
        self.alone_since_s = 0.0  # monotonic
        self._readers: list[asyncio.Future[None]] = []
        self._begun = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        """As `contracts.StoredRun` names it."""
        if not self.done:
            return "running"
        if self.error is None:
            return "completed"
        return "interrupted" if self.interrupted else "failed"

    def start(self, handler: Handler, note: Callable[["LiveRun"], Awaitable[None]]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._pump(handler, note))
        self._task.add_done_callback(lambda _: self._end())

    def replay(self, chunks: Sequence[Json]) -> None:
        """The run is over, and this was its answer."""
        self.chunks += chunks
        self.done = self.effects = True
        self._begun.set()

    async def begun(self) -> None:
        """Returns once the chain has a reply; raises what it raised instead of one."""
        await self._begun.wait()
        if self.error is not None and not self.chunks:
            raise self.error

    async def read(self) -> AsyncIterator[list[Json]]:
        """The answer from its first chunk on: each time what has come since."""
        at, loop = 0, asyncio.get_running_loop()
        while True:
            if at < len(self.chunks):
                news = self.chunks[at:]
                at += len(news)
                yield news
            elif self.done:
                break
            else:
                reader = loop.create_future()
                self._readers.append(reader)
                await reader
        if self.error is not None:
            raise self.error

    def cancel(self) -> None:
        if self._task is not None and not self.done:
            self._task.cancel()

    async def ended(self) -> None:
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _pump(self, handler: Handler, note: Callable[["LiveRun"], Awaitable[None]]) -> None:
        try:
            reply = await handler(self.exchange)
            self.intent = reply.intent
            self._begun.set()
            try:
                async for chunk in reply.chunks:
                    if EFFECTS in chunk:
                        if not self.effects:
                            self.effects = True
                            await note(self)
                        continue
                    self.chunks.append(chunk)
                    self._tell()
            finally:
                await reply.release()
        except asyncio.CancelledError:
            self._interrupt()
        except BaseException as error:
            self.error = error
        finally:
            self.done = True
            self._begun.set()
            self._tell()
            if self.effects:
                await note(self)

    def _end(self) -> None:
        """A task that is cancelled before it began runs no line of its own."""
        if not self.done:
            self._interrupt()
            self.done = True
            self._begun.set()
            self._tell()

    def _interrupt(self) -> None:
        self.interrupted = True
        self.error = interrupted(self.exchange.id)

    def _tell(self) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            if not reader.done():
                reader.set_result(None)


class LiveRuns:
    """The runs of one worker."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._runs: dict[str, LiveRun] = {}
        self._by_key: dict[tuple[str, str, str], LiveRun] = {}

    def find(self, asking: Asking) -> LiveRun | None:
        """The run that this request repeats, if it may join it. Raises GatewayError (idempotency_mismatch)."""
        self._forget_old()
        if asking.idempotency_key is not None:
            run = self._by_key.get(asking.idempotency_key)
            if run is not None and run.asking.fingerprint != asking.fingerprint:
                raise mismatch()
            return run if run is not None and _is_worth_joining(run) else None
        for run in reversed(self._runs.values()):
            if run.asking.fingerprint == asking.fingerprint and not run.clients and _is_worth_joining(run):
                return run if asking.repeats or run.cut else None
        return None

    def begin(
        self,
        exchange: Exchange,
        asking: Asking,
        handler: Handler,
        note: Callable[[LiveRun], Awaitable[None]],
    ) -> LiveRun:
        """A new run. `note` writes it down before its first effect, and when it has ended after one."""
        run = LiveRun(exchange, asking, now_s=self._clock.time())
        self._runs[exchange.id] = run
        if asking.idempotency_key is not None:
            self._by_key[asking.idempotency_key] = run
        run.start(handler, note)
        return run

    def join(self, run: LiveRun) -> None:
        run.clients += 1
        run.cut = False

    def leave(self, run: LiveRun, *, whole: bool) -> None:
        """A client is through with the run; `whole`: it has the answer to its end."""
        run.clients -= 1
        if run.clients:
            return
        run.cut = not whole
        run.alone_since_s = self._clock.monotonic()
        if not run.effects and (whole or not run.done):
            run.cancel()
            self._drop(run)
        elif not run.done:
            asyncio.get_running_loop().call_later(GRACE_S, self._abandon, run)

    async def close(self) -> None:
        """Stops everything. Idempotent."""
        runs = list(self._runs.values())
        for run in runs:
            run.cancel()
        for run in runs:
            await run.ended()
        self._runs.clear()
        self._by_key.clear()

    def _abandon(self, run: LiveRun) -> None:
        if not run.clients:
            run.cancel()

    def _drop(self, run: LiveRun) -> None:
        self._runs.pop(run.exchange.id, None)
        if run.asking.idempotency_key is not None and self._by_key.get(run.asking.idempotency_key) is run:
            del self._by_key[run.asking.idempotency_key]

    def _forget_old(self) -> None:
        """Finished runs go after a while, or when there are too many; they are in the order of their beginning."""
        oldest_s = self._clock.monotonic() - JOINABLE_S
        for run in [run for run in self._runs.values() if run.done and not run.clients]:
            if run.alone_since_s < oldest_s or len(self._runs) > KEPT:
                self._drop(run)


def mismatch() -> GatewayError:
    """An Idempotency-Key that belongs to another request."""
    return GatewayError(
        "idempotency_mismatch",
        "This Idempotency-Key came with another request before; use a new one.",
        param="idempotency-key",
    )


def interrupted(run_id: str) -> GatewayError:
    """What a request gets that repeats a run which was stopped after it had done something."""
    return GatewayError(
        "run_interrupted",
        f"The run {run_id} lost its client and was stopped; what its tools had done stays done. Look at what there is "
        "before you ask again.",
    ).after_effects()


def _is_worth_joining(run: LiveRun) -> bool:
    """One that failed before it did anything starts anew."""
    return run.effects or run.error is None
