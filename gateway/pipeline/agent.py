"""Drives agent loops: calls the model, reads its answers as they stream, runs what it asks for, asks again.

Text flows on as it comes; tool calls never do. The state machine is `gateway.runs.loop`; here is its I/O, its clock,
and what the client is told on the way.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

import orjson

from gateway.contracts import (
    Clock,
    Counters,
    Exchange,
    Handler,
    Json,
    LoopLimits,
    Reply,
    Stage,
    Store,
    StoreError,
    ToolCall,
    Verdict,
)
from gateway.errors import GatewayError
from gateway.pipeline.usage import Usage
from gateway.runs.live import EFFECTS
from gateway.runs.loop import Action, Ask, Finish, Loop, Planned, Told
from gateway.runs.turns import prefixes, put_back
from gateway.tools.catalog import Catalog
from gateway.tools.gate import Gate, take_risk_level
from gateway.tools.runner import Runner
from gateway.tools.schema import Schemas
from gateway.wire.chat_request import client_tools, wants_text
from gateway.wire.scanner import AnswerScanner, FoundCall, Malformed, Outcome

T = TypeVar("T")
log = logging.getLogger("gateway")

_RISK_LEVEL: Json = {
    "type": "string",
    "enum": ["low", "medium", "high"],
    "description": "low: runs automatically; medium or high: a person must confirm. Unsure: say high, or ask in text.",
}
_HELD = (
    "Not run: this call needs a person's approval, which cannot be asked for here. Tell the user what you would do, or "
    "find a way that needs no approval."
)


class Agents:
    """The agent loops of one configuration; `contracts.Runs`."""

    def __init__(
        self, catalog: Catalog, gate: Gate, runner: Runner, *, store: Store, counters: Counters, clock: Clock
    ) -> None:
        self.catalog = catalog
        self.gate = gate
        self.runner = runner
        self.store = store
        self.schemas = Schemas()
        self.counters = counters
        self.clock = clock

    def stage(self, limits: LoopLimits) -> Stage:
        return _AgentLoop(self, limits)


class _AgentLoop:
    """The stage: each exchange gets a run of its own."""

    def __init__(self, agents: Agents, limits: LoopLimits) -> None:
        self._agents = agents
        self._limits = limits

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        if not wants_text(exchange.body):
            return await call_next(exchange)  # a JSON answer is the client's, whatever it looks like
        run = _Run(self._agents, self._limits, exchange, call_next)
        await run.remember_hidden_turns()
        return Reply(run.chunks(), run.release)


class _Run:
    """One run."""

    def __init__(self, agents: Agents, limits: LoopLimits, exchange: Exchange, call_next: Handler) -> None:
        self._agents = agents
        self._limits = limits
        self._exchange = exchange
        self._call_next = call_next
        self._reply: Reply | None = None
        self._messages: list[Json] = exchange.body["messages"]
        self._said: list[str] = []
        self._quiet = True  # nothing was said in this round
        self._expired = False
        self._closing: asyncio.Task[None] | None = None
        self._tainted = False
        self._effects = False
        self._usage = Usage()
        self._ends_s = agents.clock.monotonic() + min(limits.timeout_s, exchange.budget_s)
        self._loop = Loop(
            limits=limits,
            plan=self._plan,
            client_tools=client_tools(exchange.body),
            new_id=lambda: "call_" + secrets.token_hex(12),
            run_id=exchange.id,
        )

    async def chunks(self) -> AsyncIterator[Json]:
        """What the client gets: text, events, one finish reason, the usage of the whole turn."""
        action: Action = Ask(())
        outcome, step = "error", 0
        timer = asyncio.get_running_loop().call_later(max(self._left_s(), 0.0), self._expire)
        try:
            if self._exchange.events:
                yield _event({"type": "run.started", "run_id": self._exchange.id})
            while not isinstance(action, Finish):
                if isinstance(action, Ask):
                    step += 1
                    if self._exchange.events:
                        yield _event({"type": "step.started", "step": step})
                    scanner, self._quiet = AnswerScanner(), True
                    content: list[str] = []
                    reason: list[str | None] = [None]
                    async for chunk in self._answer(action.messages, scanner, content, reason):
                        yield chunk
                    rest, found = scanner.finish(finish_reason=reason[0])
                    if rest:
                        content.append(rest)
                        yield _text(self._spoken(rest))
                    action = self._decide("".join(content), found, reason[0])
                else:
                    told: list[Told] = []
                    for number, planned in enumerate(action.planned):
                        if self._exchange.events:
                            yield _event(_started(planned, number))
                        if planned.refusal is None and not self._effects:
                            if self._left_s() <= 0:
                                raise self._timeout()
                            self._effects = True
                            yield {EFFECTS: True}
                        told.append(await self._execute(planned))
                        if self._exchange.events:
                            yield _event({**_started(planned, number), "type": "tool.finished"})
                    action = self._loop.executed(action.planned, told)
            if action.text:
                self._quiet = True
                yield _text(self._spoken(action.text))
            await self._keep_hidden_turns(action.tool_calls)
            for chunk in self._ending(action):
                yield chunk
            outcome = "completed"
        except Exception as failure:
            outcome, error = self._failed(failure)
            raise error from None
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "cancelled"
            raise
        finally:
            timer.cancel()
            await self.release()
            if not self._exchange.dry:
                self._agents.counters.count("agent_runs", outcome=outcome)
                self._agents.counters.observe("agent_run_steps", self._loop.asked)

    def _spoken(self, text: str) -> str:
        """Text for the client; what the model says in a later round begins a paragraph of its own."""
        if self._quiet:
            self._quiet = False
            if self._said and not self._said[-1][-1:].isspace():
                text = f"\n\n{text}"
        self._said.append(text)
        return text

    def _failed(self, failure: Exception) -> tuple[str, Exception]:
        """The run's outcome and what its client is told: after an effect nothing that makes it try again."""
        if isinstance(failure, GatewayError):
            error = self._timeout() if self._expired else failure
        elif self._effects:
            log.error("run %s failed after a tool had run", self._exchange.id, exc_info=failure)
            error = GatewayError("internal_error", "The gateway failed; its log has this request id.")
        else:
            return "error", failure
        outcome = _OUTCOMES.get(error.code, "error")
        if outcome != "error":
            log.warning("run %s ended: %s", self._exchange.id, error.message)
        return outcome, error.after_effects() if self._effects else error

    def _ending(self, finish: Finish) -> Iterator[Json]:
        for call in finish.tool_calls:
            yield {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
        if self._exchange.events:
            yield _event({"type": "run.finished", "run_id": self._exchange.id})
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": finish.reason}]}
        yield self._usage.chunk()

    async def remember_hidden_turns(self) -> None:
        """Puts the hidden messages of earlier turns back in front of the answers that they led to."""
        caller, messages = self._exchange.caller, self._messages
        answers = prefixes(messages, tenant=caller.tenant, caller=caller.name)
        if not answers:
            return
        try:
            known = await self._agents.store.hidden(list(answers.values()), tenant=caller.tenant)
        except StoreError as error:
            log.warning("hidden turns are not remembered: %s", error)
            return
        self._messages = put_back(messages, {i: known[prefix] for i, prefix in answers.items() if prefix in known})

    async def _keep_hidden_turns(self, tool_calls: tuple[Json, ...]) -> None:
        if not self._loop.hidden:
            return
        caller, messages = self._exchange.caller, self._exchange.body["messages"]
        answer = {"role": "assistant", "content": "".join(self._said), "tool_calls": tool_calls}
        prefix = prefixes([*messages, answer], tenant=caller.tenant, caller=caller.name)[len(messages)]
        try:
            await self._agents.store.put_hidden(
                prefix, self._loop.hidden, tenant=caller.tenant, now_s=self._agents.clock.time()
            )
        except StoreError as error:
            log.warning("hidden turns of run %s are not kept: %s", self._exchange.id, error)

    async def release(self) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            await reply.release()

    async def _answer(
        self, messages: tuple[Json, ...], scanner: AnswerScanner, content: list[str], reason: list[str | None]
    ) -> AsyncIterator[Json]:
        """One model call: its text as chunks; `content` and `reason` take what is needed of it afterwards."""
        body = self._body(messages)
        left_s = self._left_s()
        self._reply = await self._within(self._call_next(replace(self._exchange, body=body, budget_s=left_s)))
        self._usage.asked(body)
        async for chunk in self._reply.chunks:
            if "usage" in chunk:
                self._usage.read(chunk)
            for choice in chunk.get("choices") or ():
                if choice.get("index", 0) != 0:
                    continue
                delta = choice.get("delta") or {}
                reason[0] = choice.get("finish_reason") or reason[0]
                text, passed = delta.get("content"), {}
                if len(delta) > 1 or text is None:
                    passed = _beside_text(delta, scanner)
                if text and isinstance(text, str):
                    self._usage.said(text)
                    if shown := scanner.feed(text):
                        content.append(shown)
                        passed["content"] = self._spoken(shown)
                if passed:
                    yield {"choices": [{"index": 0, "delta": passed}]}
        await self.release()

    def _body(self, messages: tuple[Json, ...]) -> Json:
        body = {**self._exchange.body, "messages": [*self._messages, *messages]}
        if self._limits.tool_format == "native" and (offered := self._agents.catalog.offered(self._exchange)):
            theirs = self._loop.client_tools
            body["tools"] = [
                *(self._exchange.body.get("tools") or ()),
                *(_native(spec.name, spec.description, spec.parameters) for spec in offered if spec.name not in theirs),
            ]
        return body

    def _decide(self, content: str, found: Outcome, reason: str | None) -> Action:
        if isinstance(found, Malformed):
            self._agents.counters.count("agent_parse_failures")
        return self._loop.answered(content, found, finish_reason=reason)

    def _plan(self, found: FoundCall, call_id: str) -> Planned:
        """Validates and judges one call."""
        agents, exchange = self._agents, self._exchange
        entry = agents.catalog.find(found.tool, exchange)
        if entry is None:
            nearest = agents.catalog.nearest(found.tool, exchange)
            hint = f" Did you mean {' or '.join(nearest)}?" if nearest else ""
            call = ToolCall(id=call_id, tool=found.tool, arguments=found.parameters, terminate=found.terminate)
            verdict = Verdict("error", "unknown_tool", "unknown_tool")
            return Planned(call, None, verdict, f"Error: there is no tool {found.tool!r}.{hint}")
        asked = take_risk_level(found.parameters, entry.spec)
        call = ToolCall(id=call_id, tool=entry.model_name, arguments=asked.arguments, terminate=found.terminate)
        if problem := agents.schemas.problem(entry.spec, asked.arguments):
            schema = orjson.dumps(entry.spec.parameters).decode()
            refusal = f"Error: the parameters do not fit: {problem}. The schema of {entry.model_name!r}: {schema}"
            return Planned(call, entry.spec, Verdict("error", "malformed", "schema"), refusal)
        verdict = agents.gate.judge(entry.spec, asked, tainted=self._tainted)
        agents.counters.count("risk_decisions", decision=verdict.decision, basis=verdict.basis)
        if verdict.decision == "auto":
            return Planned(call, entry.spec, verdict)
        refusal = _HELD if verdict.decision == "confirm" else f"Not run: refused by policy. {verdict.reason}"
        return Planned(call, entry.spec, verdict, refusal)

    async def _execute(self, planned: Planned) -> Told:
        if planned.refusal is not None:
            return Told(planned.refusal, planned.refusal)
        entry = self._agents.catalog.find(planned.call.tool, self._exchange)
        assert entry is not None
        run = self._agents.runner.run(entry, planned.call, self._exchange, limit_chars=self._limits.result_chars)
        told = await self._within(run)
        self._tainted = self._tainted or entry.spec.untrusted
        return told

    async def _within(self, work: Awaitable[T]) -> T:
        """`work` within what is left of the run's time. Raises GatewayError (agent_timeout)."""
        try:
            async with asyncio.timeout(max(self._left_s(), 0)) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._timeout() from None

    def _expire(self) -> None:
        """Ends a model call that is read: its reader gets an error, which becomes the run's timeout."""
        self._expired = True
        self._closing = asyncio.get_running_loop().create_task(self.release())

    def _timeout(self) -> GatewayError:
        seconds = min(self._limits.timeout_s, self._exchange.budget_s)
        return GatewayError(
            "agent_timeout", f"The run took longer than {seconds:g} s and was stopped (run {self._exchange.id})."
        )

    def _left_s(self) -> float:
        return self._ends_s - self._agents.clock.monotonic()


_OUTCOMES: Mapping[str, str] = {
    "agent_timeout": "timeout",
    "agent_iteration_limit": "limit",
    "agent_malformed_tool_call": "parse_failed",
}


def _beside_text(delta: Json, scanner: AnswerScanner) -> Json:
    """What of a delta goes on besides its text: thoughts. Native tool calls are for the scanner."""
    if calls := delta.get("tool_calls"):
        scanner.feed_native(calls)
    return {key: text for key in ("reasoning_content", "reasoning") if isinstance(text := delta.get(key), str) and text}


def _text(text: str) -> Json:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


def _event(context: Json) -> Json:
    return {"choices": [{"index": 0, "delta": {}}], "context": context}


def _started(planned: Planned, number: int) -> Json:
    return {"type": "tool.started", "tool": planned.call.tool, "call_id": planned.call.id, "number": number}


def _native(name: str, description: str, parameters: Json) -> Json:
    properties = parameters.get("properties") or {}
    if "risk_level" not in properties:
        parameters = {**parameters, "properties": {**properties, "risk_level": _RISK_LEVEL}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
