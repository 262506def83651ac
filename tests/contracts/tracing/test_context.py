"""Trace context as the gateway passes it on."""

import asyncio
from dataclasses import replace

import orjson

from gateway.contracts.tracing.context import CURRENT, RunTrace, TraceContext

CONTEXT = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=False)


def test_trace_context_is_sent_as_one_or_two_headers() -> None:
    assert CONTEXT.fields == {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}
    assert CONTEXT.lines == b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00\r\n"
    assert replace(CONTEXT, state="a=1").lines == CONTEXT.lines + b"tracestate: a=1\r\n"


def test_trace_context_round_trips_through_json() -> None:
    assert TraceContext(**orjson.loads(orjson.dumps(CONTEXT))) == CONTEXT


async def test_new_task_inherits_the_current_trace_context() -> None:
    async def look() -> TraceContext | None:
        return CURRENT.get()

    token = CURRENT.set(CONTEXT)
    task = asyncio.create_task(look())
    CURRENT.reset(token)
    assert await task is CONTEXT and CURRENT.get() is None


def test_run_trace_is_ended_by_default() -> None:
    assert not RunTrace(CONTEXT, 0.0).goes_on
