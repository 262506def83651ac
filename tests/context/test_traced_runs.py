"""The span of a run: sent by whoever ends it, with the ids and the begin that are stored."""

from dataclasses import replace

import orjson
import pytest

from gateway.context.traced_runs import trace_run
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Emit, Exchange, Handler, Pause, Reply, Resume
from gateway.contracts.tracing.context import CURRENT, TraceContext
from gateway.contracts.tracing.tracer import Record, Tracer
from gateway.runs.request_snapshot import build_run_record, load_exchange
from tests.exchanges import changed

ABOVE = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=True)
CALLER = Caller("ci", "acme", frozenset())
EXCHANGE = Exchange(id="run_1", body={"messages": []}, caller=CALLER, chain="assistant", conversation="talk")


def chain(seen: list[Exchange], *, leaves: bool = False, error: Exception | None = None) -> Handler:
    """A chain that parks its run if it `leaves`."""

    async def handle(exchange: Exchange) -> Reply:
        seen.append(exchange)

        async def stream(emit: Emit) -> None:
            emit("text")
            assert exchange.execution.trace is not None and CURRENT.get() is exchange.execution.trace.context
            exchange.execution.trace.goes_on = leaves
            exchange.execution.trace.outcome = "awaiting_approval" if leaves else "completed"
            if error is not None:
                raise error

        async def release() -> None:
            """Hold nothing."""

        return Reply(stream, release)

    return handle


def nowhere(_: object) -> Pause | None:
    return None


async def run(handler: Handler, exchange: Exchange, sent: list[Record], *, above: TraceContext | None = ABOVE) -> None:
    tracer = Tracer(sent.append, share=1.0, receivers=frozenset())
    before = CURRENT.set(above)
    try:
        reply = await trace_run(handler, tracer)(exchange)
        await reply.stream(nowhere)
    finally:
        CURRENT.reset(before)


async def test_a_run_has_a_span_below_its_request() -> None:
    sent: list[Record] = []
    await run(chain([]), EXCHANGE, sent)
    (span,) = sent
    assert (span.name, span.kind, span.error) == ("invoke_agent assistant", "internal", "")
    assert (span.context.trace_id, span.context.parent_id) == (ABOVE.trace_id, ABOVE.span_id)
    assert span.attributes["gen_ai.conversation.id"] == "talk" and span.attributes["twolane.run.id"] == "run_1"
    assert 0 < span.began_ns <= span.ended_ns


async def test_parked_run_sends_one_span_from_its_last_process() -> None:
    sent, seen = list[Record](), list[Exchange]()
    await run(chain(seen, leaves=True), EXCHANGE, sent)
    assert sent == []
    stored = replace(build_run_record(seen[0], now_s=1000.0), state="awaiting_approval")
    assert "trace" in orjson.loads(stored.request)
    later = load_exchange(Resume(stored), approvals="turn")
    decider = TraceContext("f" * 32, "e" * 16, sampled=True)
    await run(chain([]), later, sent, above=decider)
    (span,) = sent
    assert seen[0].execution.trace is not None and span.context == seen[0].execution.trace.context
    assert span.began_ns == int(seen[0].execution.trace.began_s * 1e9)  # and not when it was stored first


async def test_run_stored_without_a_trace_starts_a_new_trace() -> None:
    sent: list[Record] = []
    stored = build_run_record(EXCHANGE, now_s=1000.0)
    assert b"trace" not in stored.request
    await run(chain([]), load_exchange(Resume(stored), approvals="turn"), sent)
    assert sent[0].context.trace_id != ABOVE.trace_id and sent[0].context.parent_id == ""


async def test_a_failed_run_fails_its_span() -> None:
    sent: list[Record] = []
    with pytest.raises(GatewayError):
        await run(chain([], error=GatewayError("agent_timeout", "why")), EXCHANGE, sent)
    assert [one.error for one in sent] == ["agent_timeout"]


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"workflow": {"definition": {"name": "look"}}}, "invoke_workflow look"),
        ({"call": {"tool": "srv.echo", "arguments": {}}}, "run srv.echo"),
        ({"task": "title"}, "run title"),
    ],
)
async def test_run_spans_are_named_by_run_kind(facts: dict[str, object], name: str) -> None:
    sent: list[Record] = []
    await run(chain([]), changed(EXCHANGE, **facts), sent)
    assert [one.name for one in sent] == [name]
