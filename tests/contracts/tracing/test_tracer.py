"""Spans: their ids, what is sampled, how they end."""

import asyncio

import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.tracing.context import CURRENT, TraceContext
from gateway.contracts.tracing.tracer import Record, Tracer, generate_span_id, get_error_type

SENDER = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=True, state="a=b")


def tracer_to(sent: list[Record], share: float = 1.0) -> Tracer:
    return Tracer(sent.append, share=share, receivers=frozenset())


def test_request_span_continues_the_trace_of_its_sender() -> None:
    context = tracer_to([]).build_request_context(SENDER)
    assert (context.trace_id, context.parent_id, context.state) == (SENDER.trace_id, SENDER.span_id, "a=b")
    assert context.remote and context.sampled and context.span_id != SENDER.span_id


def test_nested_spans_are_current_while_open() -> None:
    sent: list[Record] = []
    tracer = tracer_to(sent)
    with tracer.under_way("outer", "internal", {"a": 1}) as outer:
        with tracer.under_way("inner", "client", {}):
            assert CURRENT.get() is not None
        assert CURRENT.get() is outer.context
        outer.attributes["b"] = 2
    assert CURRENT.get() is None
    inner, top = sent
    assert (inner.name, top.name, top.attributes) == ("inner", "outer", {"a": 1, "b": 2})
    assert inner.context.parent_id == top.context.span_id and top.context.parent_id == ""
    assert inner.context.trace_id == top.context.trace_id
    assert top.began_ns <= inner.began_ns <= inner.ended_ns <= top.ended_ns


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_sampling_share_sets_the_fraction_of_sampled_traces(share: float) -> None:
    tracer = tracer_to([], share)
    sampled = sum(tracer.open_child_span(None).sampled for _ in range(4000))
    assert abs(sampled - 4000 * share) < 200


def test_remote_trace_keeps_its_sampling_decision() -> None:
    assert tracer_to([], 0.0).build_request_context(SENDER).sampled
    unsampled = TraceContext(SENDER.trace_id, SENDER.span_id, sampled=False)
    assert not tracer_to([], 1.0).build_request_context(unsampled).sampled


def test_unsampled_trace_exports_no_spans() -> None:
    sent: list[Record] = []
    tracer = tracer_to(sent, 0.0)
    with tracer.under_way("one", "internal", {}) as span, tracer.under_way("two", "internal", {}) as below:
        assert not span.is_sampled and not below.is_sampled and not below.context.sampled
    assert sent == []


def test_an_exception_is_the_error_of_its_span() -> None:
    sent: list[Record] = []
    for error in (GatewayError("upstream_error", "why"), ValueError("secret"), asyncio.CancelledError()):
        with pytest.raises(type(error)), tracer_to(sent).under_way("one", "internal", {}):
            raise error
    assert [one.error for one in sent] == ["upstream_error", "ValueError", "cancelled"]


def test_span_that_is_ended_twice_is_recorded_once() -> None:
    sent: list[Record] = []
    span = tracer_to(sent).begin("one", "internal", {}, parent=None)
    span.end("first")
    span.end("second")
    assert [one.error for one in sent] == ["first"]


def test_ids_are_random_and_never_zero() -> None:
    ids = {generate_span_id() for _ in range(1000)}
    assert len(ids) == 1000 and all(len(one) == 16 and int(one, 16) for one in ids)
    assert get_error_type(None) == "" and get_error_type("word") == "word"
