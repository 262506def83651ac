"""A chain: stages folded, first listed outermost, around the model call.

It is folded once from configuration. A stage that fails fails the request. The exception: its chain has `on_error:
skip`, and the stage had not called the next one yet. Then the request goes on without it, and the skip is counted.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.contracts.errors import GatewayError, convert_fatal_error, is_ending
from gateway.contracts.exchange import Emit, Exchange, Handler, Reply, Stage
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.records import replace
from gateway.contracts.tracing.tracer import Tracer
from gateway.runs.live_run import rebuild_cancellation

log = logging.getLogger("gateway")


@dataclass(frozen=True, slots=True)
class Link:
    """A stage as listed in its chain; `runs_tools`, `only_adds`, `guards_answers`: as its plugin declares."""

    name: str
    stage: Stage
    on_error: Literal["fail", "skip"] = "fail"
    runs_tools: bool = False
    only_adds: bool = False
    guards_answers: bool = False


@dataclass(frozen=True, slots=True)
class Chain:
    """A folded chain; `links` are its stages, outermost first, and `handlers` the chain from each of them on.

    `guarded` returns a handler inside the stages above the innermost one that runs tools, if they guard answers; None:
    there are none. `guards` does so with all stages that guard answers, for a request that goes past the others.
    """

    name: str
    links: tuple[Link, ...]
    handler: Handler
    handlers: tuple[Handler, ...]
    guarded: Callable[[Handler], Handler] | None = None
    guards: Callable[[Handler], Handler] | None = None

    def build_plain_handler(self, model: Handler) -> Handler:
        """Return the handler of a request that goes to the model alone, past the chain: its guards see it."""
        return model if self.guards is None else self.guards(model)

    def list_guards(self) -> tuple[Link, ...]:
        """Return the stages that guard answers, outermost first."""
        return tuple(link for link in self.links if link.guards_answers)

    def find_resume_handler(self) -> Handler | None:
        """Return the part of the chain that a resumed run goes through, inside the answer guards; or None."""
        looping = self.find_loop_handler()
        return looping if looping is None or self.guarded is None else self.guarded(looping)

    def find_loop_handler(self) -> Handler | None:
        """Return the chain from the innermost stage on that runs tools, or None."""
        found = (handler for link, handler in zip(self.links, self.handlers, strict=True) if link.runs_tools)
        return next(iter([*found][-1:]), None)

    def find_unpassed_stage(self) -> str | None:
        """Return the first stage that a stored run does not pass again, and that does more than add to requests."""
        last = max((place for place, link in enumerate(self.links) if link.runs_tools), default=0)
        return next((link.name for link in self.links[:last] if not (link.only_adds or link.runs_tools)), None)


def fold(
    name: str, links: Sequence[Link], core: Handler, *, counters: Counters, clock: Clock, tracer: Tracer | None = None
) -> Chain:
    """Fold the stages around `core` into one handler. `tracer` makes their spans."""
    handler = core
    handlers: list[Handler] = []
    for link in reversed(links):
        handler = _wrap_stage(link, handler, counters=counters, clock=clock)
        if tracer is not None and not link.runs_tools:  # what the loop does is below the run itself
            handler = _trace_stage(link.name, handler, tracer)
        handlers.append(handler)
    innermost = max((place for place, link in enumerate(links) if link.runs_tools), default=0)

    def build_guards(guarding: Sequence[Link]) -> Callable[[Handler], Handler] | None:
        guards = [link for link in guarding if link.guards_answers]

        def with_guards(inner: Handler) -> Handler:
            for link in reversed(guards):
                inner = _wrap_stage(link, inner, counters=counters, clock=clock)
            return inner

        return with_guards if guards else None

    guarded, guards = build_guards(links[:innermost]), build_guards(links)
    return Chain(name, tuple(links), handler, tuple(reversed(handlers)), guarded, guards)


def _wrap_stage(link: Link, inner: Handler, *, counters: Counters, clock: Clock) -> Handler:
    """Return a handler that runs a stage around `inner`: it times the stage and contains its failures."""
    what = f"the stage {link.name!r}"

    async def handle(exchange: Exchange) -> Reply:
        inner_s = 0.0
        called = False
        passed: Reply | None = None

        async def call_next(changed: Exchange) -> Reply:
            nonlocal inner_s, called, passed
            called = True
            since = clock.monotonic()
            try:
                passed = await inner(changed)
                return passed
            finally:
                inner_s += clock.monotonic() - since

        began = clock.monotonic()
        task, before = _count_cancellations()
        try:
            reply = await link.stage(exchange, call_next)
            if task.cancelling() > before:
                raise rebuild_cancellation(task)
            if passed is not None and reply.stream is passed.stream and reply.release is passed.release:
                return reply  # it is another stage's, which has its guards
            return _contain_reply(reply, link.name)
        except BaseException as error:
            if passed is not None:  # no stage owns the reply that it had
                await passed.release()
            if called or link.on_error == "fail" or not _is_stage_failure(error):
                raise convert_fatal_error(error, what)  # noqa: B904  # it names its origin
            log.error("%s failed and is skipped (on_error: skip)", what, exc_info=convert_fatal_error(error, what))
            counters.count("stage_skips", stage=link.name)
            return await inner(exchange)
        finally:
            counters.observe("stage_duration_seconds", clock.monotonic() - began - inner_s, stage=link.name)

    return handle


def _trace_stage(stage: str, handler: Handler, tracer: Tracer) -> Handler:
    """Return the handler of a stage with a span, which ends when the reply begins."""

    async def handle(exchange: Exchange) -> Reply:
        with tracer.under_way(f"stage {stage}", "internal", {"twolane.stage": stage}):
            return await handler(exchange)

    return handle


def _is_stage_failure(error: BaseException) -> bool:
    """Return whether an error is a stage's failure, and neither an answer for the client nor a cancellation."""
    return (is_ending(error) or isinstance(error, Exception)) and not isinstance(error, GatewayError)


def _count_cancellations() -> tuple[asyncio.Task[Any], int]:
    """Return the current task, and how often it was cancelled.

    A stage may take a cancellation for its own. If there are more behind it, the task is cancelled again: the run has
    no client, no process or no lease any more, and an answer that goes on would pass for a whole one.
    """
    task = asyncio.current_task()
    assert task is not None
    return task, task.cancelling()


def _contain_reply(reply: Reply, stage: str) -> Reply:
    """Return `reply` with its stream and release contained, so that neither can end the process."""

    what, end = f"the answer of the stage {stage!r}", f"the end of the stage {stage!r}"

    async def stream(emit: Emit) -> None:
        task, before = _count_cancellations()
        try:
            await reply.stream(emit)
            if task.cancelling() > before:
                raise rebuild_cancellation(task)
        except BaseException as error:
            raise convert_fatal_error(error, what)  # noqa: B904  # it names its origin

    async def release() -> None:
        try:
            await reply.release()
        except BaseException as error:
            raise convert_fatal_error(error, end)  # noqa: B904  # it names its origin

    return replace(reply, stream=stream, release=release)
