"""The check of a stage: it passes each request on, hands the answer back as it comes, and releases it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from gateway.contracts.exchange import Chunk, Emit, Exchange, Pause, Reply, Stage
from gateway.contracts.plugin import Plugin
from gateway.testing.contract import Subject, load_subject, run
from gateway.testing.host import FakeHost
from gateway.testing.model import make_exchange
from gateway.testing.raw_connection import PATIENCE_S

_CHUNKS: Final[tuple[Chunk, ...]] = (
    "Hel",
    "lo. " + "How are you today? " * 20,
    "Bye.",
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
)


class ClientLeft(Exception):  # noqa: N818  (an event: what `emit` raises when the client has gone)
    """The client of the check has gone."""


def check_stage(
    plugin: str | Plugin[Any, Any],
    config: Mapping[str, object] | None = None,
    *,
    folder: Path | None = None,
    host: FakeHost | None = None,
    exchanges: Iterable[Exchange] = (),
) -> Stage:
    """Check a stage against the rules of docs/plugins.md, and return one, built for `host`, for further tests.

    `plugin` is a name as after `use:`, with the `folder` of your plugins if it is there, or a `Plugin`; `config` is
    its `with:`. The stage must pass each of `exchanges` on, besides a few that every chain gets. Raises ContractError.
    """
    host = host or FakeHost()
    one = load_subject("stages", plugin, config, folder)
    requests = [
        make_exchange("Hello?"),
        make_exchange("Hello?", body={"stream": True}, notes=("a note",), conversation="c", user="ann"),
        make_exchange({"role": "user", "content": [{"type": "text", "text": "Hello?"}]}),
        make_exchange("Hello?", dry=True),
        *exchanges,
    ]
    one.build(host.copy())  # needs no event loop
    run(partial(_check, one, host, requests))
    stage: Stage = one.build(host)
    return stage


async def _check(one: Subject, host: FakeHost, requests: list[Exchange]) -> None:
    async with host.copy() as inside:
        stage: Stage = one.build(inside)
        for exchange in requests:
            await _check_forwarding(one, stage, exchange)
        await _check_pauses(one, stage, requests[0])
        await _check_emit_exception(one, stage, requests[0])
        await _check_cancellation(one, stage, requests[0])
        await _check_answer_cancellation(one, stage, requests[0])
        await _check_request_isolation(one, stage, requests[0])


async def _do_nothing() -> None:
    """Return at once."""


@dataclass
class _Next:
    """The next handler of a check. `before_reply` and `between_chunks` are awaited at their places."""

    before_reply: Callable[[], Awaitable[object]] = _do_nothing
    between_chunks: Callable[[], Awaitable[object]] = _do_nothing
    on_emit: Callable[[Pause | None], None] = lambda _pause: None
    seen: list[Exchange] = field(default_factory=list)
    n_streamed: int = 0
    n_released: int = 0

    async def __call__(self, exchange: Exchange) -> Reply:
        self.seen.append(exchange)
        await self.before_reply()
        return Reply(self._stream, self._release)

    async def _stream(self, emit: Emit) -> None:
        self.n_streamed += 1
        for chunk in _CHUNKS:
            pause = emit(chunk)
            self.on_emit(pause)
            if pause is not None:
                await pause()
            await self.between_chunks()

    async def _release(self) -> None:
        await asyncio.sleep(0)  # a release that is not awaited gets no further
        self.n_released += 1


async def _build_reply(one: Subject, stage: Stage, exchange: Exchange, call_next: _Next) -> Reply:
    try:
        reply = await stage(exchange, call_next)
    except Exception as error:
        one.fail("answers every request", f"it raised {error!r}", "return the reply of call_next", at=stage)
    if not isinstance(reply, Reply):
        one.fail("returns a Reply", f"it returned {reply!r}", "return the reply of call_next, or another", at=stage)
    return reply


async def _check_forwarding(one: Subject, stage: Stage, exchange: Exchange) -> None:
    before, inner = deepcopy(exchange.body), _Next()
    reply = await _build_reply(one, stage, exchange, inner)
    if not inner.seen:
        instead = "return await call_next(exchange) where the stage has nothing to do"
        one.fail("passes the exchange on", "call_next was not awaited", instead, at=stage)
    for passed in inner.seen:
        if not isinstance(passed, Exchange) or (passed.id, passed.caller) != (exchange.id, exchange.caller):
            instead = "make it with dataclasses.replace, and leave id and caller as they are"
            one.fail("passes the exchange on", f"call_next got {passed!r}", instead, at=stage)
    client: list[Chunk] = []
    try:
        await reply.stream(client.append)
    except Exception as error:
        one.fail("hands the answer on", f"stream raised {error!r}", "await reply.stream(emit)", at=stage)
    if inner.n_streamed > 1:
        one.fail("streams a reply once", f"it did {inner.n_streamed} times", "await reply.stream once", at=stage)
    if exchange.body != before:
        instead = "make another one: dataclasses.replace(exchange, body={**exchange.body, ...})"
        one.fail("does not change its exchange", f"the body {before} became {exchange.body}", instead, at=stage)
    await _check_released(one, stage, reply, inner)


async def _check_released(one: Subject, stage: Stage, reply: Reply, inner: _Next) -> None:
    instead = "return dataclasses.replace(reply, stream=...), or await reply.release() in a release of your own"
    try:
        await reply.release()
        n_released = inner.n_released
        await reply.release()
    except Exception as error:
        one.fail("a reply can be released twice", f"release raised {error!r}", instead, at=stage)
    if not n_released:
        found = "release returned before the release of the inner reply was awaited"
        one.fail("releases the reply that it got", found, instead, at=stage)


async def _check_pauses(one: Subject, stage: Stage, exchange: Exchange) -> None:
    """Check that what `emit` returns while the inner reply emits is what the stage's own `emit` returns."""
    given: list[Pause] = []

    async def pause() -> None:
        """Return at once: this client has caught up."""

    def emit(chunk: Chunk) -> Pause:
        del chunk
        given.append(pause)
        return pause

    def on_emit(got: Pause | None) -> None:
        if given and got is None:
            instead = "return what emit returns, in the function that you pass to reply.stream"
            one.fail("waits for a slow client", "the pause of the client was dropped", instead, at=stage)
        given.clear()

    reply = await _build_reply(one, stage, exchange, inner := _Next(on_emit=on_emit))
    await reply.stream(emit)
    await _check_released(one, stage, reply, inner)


async def _check_emit_exception(one: Subject, stage: Stage, exchange: Exchange) -> None:
    """Check that an exception of `emit` ends the answer."""
    n_emitted = 0

    def emit(chunk: Chunk) -> None:
        nonlocal n_emitted
        del chunk
        n_emitted += 1
        raise ClientLeft

    reply = await _build_reply(one, stage, exchange, inner := _Next())
    instead = "let the exceptions of emit pass"
    try:
        await reply.stream(emit)
    except ClientLeft:
        if n_emitted > 1:
            one.fail("ends with its client", "it went on emitting", instead, at=stage)
    else:
        if n_emitted:
            one.fail("ends with its client", "an exception of emit was lost", instead, at=stage)
    await _check_released(one, stage, reply, inner)


async def _check_cancellation(one: Subject, stage: Stage, exchange: Exchange) -> None:
    reached = asyncio.Event()
    inner = _Next(before_reply=partial(_hang, reached))
    await _cancel(one, stage, asyncio.ensure_future(stage(exchange, inner)), reached)


async def _check_answer_cancellation(one: Subject, stage: Stage, exchange: Exchange) -> None:
    reached = asyncio.Event()
    reply = await _build_reply(one, stage, exchange, inner := _Next(between_chunks=partial(_hang, reached)))
    await _cancel(one, stage, asyncio.ensure_future(reply.stream(lambda _chunk: None)), reached)
    await _check_released(one, stage, reply, inner)


async def _hang(reached: asyncio.Event) -> None:
    reached.set()
    await asyncio.Event().wait()


async def _cancel(one: Subject, stage: Stage, task: asyncio.Future[Any], reached: asyncio.Event) -> None:
    """Cancel a task at the place where it hangs; it must end cancelled."""
    async with asyncio.timeout(PATIENCE_S):
        await reached.wait()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=PATIENCE_S)
    instead = "raise asyncio.CancelledError again wherever you catch it"
    if not done:
        one.fail("ends when it is cancelled", "it goes on", instead, at=stage)
    if not task.cancelled():
        one.fail("ends when it is cancelled", f"it ended with {task.exception() or task.result()!r}", instead, at=stage)


async def _check_request_isolation(one: Subject, stage: Stage, exchange: Exchange) -> None:
    """Check that two requests at the same time do not meet in the stage."""
    both = asyncio.Barrier(2)
    requests = [replace(exchange, id=f"run_{n}", notes=(f"note {n}",)) for n in (1, 2)]
    inner = [_Next(before_reply=both.wait) for _ in requests]
    async with asyncio.timeout(PATIENCE_S):
        replies = await asyncio.gather(*map(partial(_build_reply, one, stage), requests, inner))
    for request, call_next, reply in zip(requests, inner, replies, strict=True):
        if [passed.id for passed in call_next.seen] != [request.id]:
            found = f"the handler of {request.id} got {[passed.id for passed in call_next.seen]}"
            instead = "keep what belongs to one request in local variables, not on self"
            one.fail("keeps requests apart", found, instead, at=stage)
        await _check_released(one, stage, reply, call_next)
