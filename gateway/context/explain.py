"""The explanation of a chat completion: its model request. No model is called; nothing is stored."""

import asyncio
from dataclasses import asdict, dataclass

from gateway.context.chain import fold
from gateway.context.lane import ContextLane
from gateway.contracts.caller import Caller
from gateway.contracts.calls import PlannedCall
from gateway.contracts.exchange import Chunk, Emit, Exchange, Intent, Reply
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.records import replace
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall
from gateway.dialects.chat_request import get_whole_text, list_client_tools, may_call_tools
from gateway.model.adaptation.quirks import sort_quirks
from gateway.model.apis.table import get_model_api
from gateway.model.call import ModelCall
from gateway.model.candidates import ModelCandidate
from gateway.tools.call_evaluator import Judge
from gateway.tools.gate import RiskClaim
from gateway.tools.risk_level import find_outer_level
from gateway.workflows.invocation import find_workflow_call


@dataclass(frozen=True, slots=True, kw_only=True)
class Explainer:
    """The parts of one configuration that explain requests. `model` replaces the client's model."""

    lane: ContextLane
    core: ModelCall
    model: str | None
    judge: Judge
    counters: Counters
    clock: Clock

    async def explain(self, exchange: Exchange) -> Json:
        """Return the explanation without verdicts.

        Raises GatewayError where the chain would, and for a workflow call with wrong parameters.
        """
        chain = self.lane.chains[exchange.chain]
        called = (
            None
            if exchange.job.task is not None
            else find_workflow_call(get_whole_text(exchange.body), self.lane.workflows)
        )
        if called is not None:
            workflow, parameters = called
            told = {"name": workflow.name, "parameters": parameters, "steps": [step.name for step in workflow.steps]}
            model = self.model or exchange.body.get("model")
            return {"lane": "context", "chain": chain.name, "workflow": told, "model": model}
        recorder = _Recorder()
        links = chain.links if exchange.job.task is None else chain.list_guards()
        handler = fold(chain.name, links, recorder, counters=self.counters, clock=self.clock).handler
        reply = await handler(replace(exchange, dry=True, delivery=replace(exchange.delivery, events=False)))
        try:
            await recorder.run_until_request(reply)
        finally:
            await reply.release()
        seen = recorder.seen
        intent = reply.intent if seen is None or seen.intent is None else seen.intent
        body = exchange.body if seen is None else seen.body
        stages = [link.name for link in links]
        candidates = self.core.list_candidates(body).filter_allowed(exchange.caller)
        return {
            "lane": "context",
            "chain": chain.name,
            "workflow": None,  # else its name, parameters and steps, and none of what follows
            "task": exchange.job.task,  # else what a program wants for itself, and there are no stages but guards
            "stages": stages,
            "intent": None if intent is None else _describe_intent(intent),
            "prompt": exchange.prompt,
            "remarks": [] if seen is None else seen.execution.remarks,  # of the stages
            # None: a stage answers by itself, and no model is asked.
            "messages": None if seen is None else body["messages"],
            "parameters": {name: value for name, value in body.items() if name not in ("messages", "model")},
            "tools": self._describe_tools(exchange)
            if seen is not None and any(link.runs_tools for link in links)
            else [],
            "model": self.model or body.get("model"),
            "upstream": candidates.upstream,
            # What is tried, in this order.
            "candidates": [self._describe_candidate(one, body, exchange.caller) for one in candidates.models],
        }

    def _describe_candidate(self, candidate: ModelCandidate, body: Json, caller: Caller) -> Json:
        """Return a candidate's model, upstream, API and quirks, and what of the request its model does not get."""
        model, upstream = candidate.get_model_name(body), candidate.upstream
        quirks = sort_quirks(self.core.get_quirks(upstream, model, caller=caller))
        endpoint = upstream.group.members[0].pool.endpoint
        told = {"api": endpoint.models.api, "not_sent": get_model_api(endpoint).list_lost(body)}
        return {"model": model, "upstream": upstream.name, "quirks": quirks, **told}

    async def judge_call(self, call: Json, exchange: Exchange) -> Json:
        """Return the verdict on one call of a run that has read nothing yet. Its schema is checked before the gate."""
        entry = self.judge.catalog.find(call["tool"], exchange)
        if entry is None:
            verdict = self.judge.gate.judge(None, RiskClaim(call["parameters"]), tainted=False)
        else:
            claim = self.judge.claim(entry, call["parameters"], beside=find_outer_level(call))
            verdict = self.judge.judge_call(entry, claim, tainted=False, asked_for=False)
            planned = PlannedCall(
                ToolCall(id="", tool=entry.model_name, arguments=claim.arguments), entry.spec, verdict
            )
            verdict = (await self.judge.examine_call(planned, exchange)).verdict
        return {"tool": call["tool"], **asdict(verdict)}

    def _describe_tools(self, exchange: Exchange) -> list[Json]:
        """Return the gateway's callable tools; a client's tool of the same name replaces one."""
        if not may_call_tools(exchange):
            return []
        theirs = list_client_tools(exchange.body)
        return [
            {"name": spec.name, "requires_approval": spec.requires_approval, "category": spec.category}
            for spec in self.judge.catalog.get_offered(exchange)
            if spec.name not in theirs
        ]


class _Recorder:
    """The stand-in for the model. It stores its first request."""

    def __init__(self) -> None:
        self.seen: Exchange | None = None
        self._asked = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> Reply:
        self.seen = self.seen or exchange
        self._asked.set()
        return Reply(_wait_forever)

    async def run_until_request(self, reply: Reply) -> None:
        """Run the chain until it calls the model or ends. Raises the chain's error."""
        answering = asyncio.ensure_future(reply.stream(_ignore_chunk))
        claim = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait({answering, claim}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            claim.cancel()
            answering.cancel()
            await asyncio.wait({answering, claim})
        if not answering.cancelled():
            answering.result()


async def _wait_forever(_tell: Emit) -> None:
    """Wait without end: the run is ended before an answer could have effects."""
    await asyncio.Event().wait()


def _ignore_chunk(_chunk: Chunk) -> None:
    """Ignore a chunk: a chain that is only explained has no reader."""


def _describe_intent(intent: Intent) -> Json:
    """Return the fields of an intent for the explanation."""
    return {
        "kind": intent.kind,
        "rule": intent.rule,
        "span": intent.span,
        "service": intent.service,
        "tools": intent.tools,
    }
