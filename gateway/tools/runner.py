"""The runner of calls that may run: time, failure and size of the result are bounded, and each call is counted."""

import asyncio
import logging
from dataclasses import replace

from gateway.aio.cooperative import run_cooperatively
from gateway.contracts.calls import CallOutcome
from gateway.contracts.errors import contained
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.contracts.tracing.context import ToolTrace
from gateway.contracts.tracing.tracer import Attribute, Tracer
from gateway.tools.call_answer import dump_answer
from gateway.tools.catalog import CatalogEntry
from gateway.tools.results import Results, clean_stepwise, get_owner

log = logging.getLogger("gateway")


class Runner:
    """The runner of calls of one configuration's tools."""

    def __init__(self, results: Results, *, counters: Counters, clock: Clock, tracer: Tracer | None = None) -> None:
        self._results = results
        self._tracer = tracer
        self._counters = counters
        self._clock = clock

    def taints(self, entry: CatalogEntry, call: ToolCall, exchange: Exchange) -> bool:
        """Return whether the result is untrusted, because of the tool or of the stored result that it reads."""
        if entry.source is self._results:
            return self._results.is_untrusted(call.arguments.get("id"), owner=get_owner(exchange))
        return entry.spec.untrusted

    async def run(self, entry: CatalogEntry, call: ToolCall, exchange: Exchange, *, limit_chars: int) -> CallOutcome:
        """Return the call's result; an exception of a tool becomes one. A cancelled call is cancelled in its tool."""
        tracer = self._tracer
        if tracer is None:
            return await self._run(entry, call, exchange, limit_chars=limit_chars)
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": entry.spec.name,
            "gen_ai.tool.call.id": call.id,
            "twolane.run.id": exchange.id,
        }
        with tracer.under_way(f"execute_tool {entry.spec.name}", "internal", attributes) as span:
            trace = ToolTrace(span.context, tracer.receivers)
            exchange = replace(exchange, execution=replace(exchange.execution, tool_trace=trace))
            outcome = await self._run(entry, call, exchange, limit_chars=limit_chars)
            span.attributes |= trace.facts
            if trace.facts:  # a server's tool
                span.kind = "client"
            span.error = "" if outcome.ok else trace.error or "tool_error"
            return outcome

    async def _run(self, entry: CatalogEntry, call: ToolCall, exchange: Exchange, *, limit_chars: int) -> CallOutcome:
        """Call the tool, count and time it, and return its cleaned and shortened result."""
        began, outcome = self._clock.monotonic(), "cancelled"
        try:
            with contained(f"the tool {entry.spec.name!r}"):
                result = await entry.source.call(replace(call, tool=entry.spec.name), exchange)
            outcome = "ok" if result.ok else "failed"
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("tool %r failed, request id %s", entry.spec.name, exchange.id)
            result = ToolResult(f"The tool {entry.spec.name!r} failed; the gateway's log says why.", ok=False)
            outcome = "failed"
        finally:
            self._counters.count("tool_calls", tool=entry.spec.name, outcome=outcome)
            self._counters.observe("tool_duration_seconds", self._clock.monotonic() - began, tool=entry.spec.name)
        whole = await run_cooperatively(clean_stepwise(result.content))
        if not result.ok:
            whole = f"Error: {whole}"
        shown = self._results.shorten(
            whole, owner=get_owner(exchange), limit_chars=limit_chars, untrusted=self.taints(entry, call, exchange)
        )
        answer = dump_answer(result, shown=shown, whole=whole) if exchange.job.is_one_call else None
        return CallOutcome(shown, whole, result.ok, answer)
