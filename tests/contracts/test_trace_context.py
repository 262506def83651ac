"""Trace context as the gateway passes it on."""

import asyncio
from dataclasses import replace

import orjson

from gateway.contracts.trace_context import CURRENT, RunTrace, TraceContext

CONTEXT = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=False)


def test_context_goes_on_as_one_field_or_two() -> None:
    assert CONTEXT.fields == {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}
    assert CONTEXT.lines == b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00\r\n"
    assert replace(CONTEXT, state="a=1").lines == CONTEXT.lines + b"tracestate: a=1\r\n"


def test_context_can_be_stored() -> None:
    assert TraceContext(**orjson.loads(orjson.dumps(CONTEXT))) == CONTEXT


async def test_a_task_begins_with_the_span_of_its_maker() -> None:
    async def look() -> TraceContext | None:
        return CURRENT.get()

    token = CURRENT.set(CONTEXT)
    task = asyncio.create_task(look())
    CURRENT.reset(token)
    assert await task is CONTEXT and CURRENT.get() is None


def test_a_run_has_ended_unless_it_says_that_it_goes_on() -> None:
    assert not RunTrace(CONTEXT, 0.0).goes_on
