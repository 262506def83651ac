"""POST /context/explain: what a chat completion would become. No model is called, and nothing is kept or forgotten.

The chain of the request is folded once more, around a recorder instead of the model: what is shown is what the stages
made, not a description of it. The run ends where the first model call would begin.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import orjson
from aiohttp import web

from gateway.contracts.exchange import Chunk, Clock, Counters, Exchange, Intent, Json, Reply, Tell, ToolCall
from gateway.errors import GatewayError
from gateway.api.site import REQUEST_ID, Route
from gateway.api.chat import Identify, head_of, identities_of
from gateway.dialects.chat_body import chat_request
from gateway.api.content import aside, check_values, content_of
from gateway.context.lane import AGENT_LOOP, ContextLane, new_run_id
from gateway.api.workflows import called_in
from gateway.context.chain import fold
from gateway.context.model import ModelCore
from gateway.agent.loop import Planned
from gateway.tools.gate import Asked
from gateway.tools.judge import Judge
from gateway.dialects.chat_request import client_tools, wants_text, whole_text
from gateway.contracts.risk import level_beside

EXPLAIN_PATH = "/context/explain"
#: Calls that are judged in one request.
CALLS_LIMIT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Explainer:
    """One configuration, as far as requests are explained by it.

    `model` is what it asks for instead of the client's model.
    """

    lane: ContextLane
    core: ModelCore
    model: str | None
    judge: Judge
    counters: Counters
    clock: Clock

    async def explain(self, exchange: Exchange) -> Json:
        """The answer without verdicts. Raises GatewayError where the chain would, and for what a workflow needs."""
        chain = self.lane.chains[exchange.chain]
        called = None if exchange.task is not None else called_in(whole_text(exchange.body), self.lane.workflows)
        if called is not None:
            workflow, parameters = called
            told = {"name": workflow.name, "parameters": parameters, "steps": [step.name for step in workflow.steps]}
            model = self.model or exchange.body.get("model")
            return {"lane": "context", "chain": chain.name, "workflow": told, "model": model}
        recorder = _Recorder()
        links = chain.links if exchange.task is None else ()
        handler = fold(chain.name, links, recorder, counters=self.counters, clock=self.clock).handler
        reply = await handler(replace(exchange, dry=True, events=False))
        try:
            await recorder.until_asked(reply)
        finally:
            await reply.release()
        seen = recorder.seen
        intent = reply.intent if seen is None or seen.intent is None else seen.intent
        body = exchange.body if seen is None else seen.body
        stages = [link.name for link in links]
        return {
            "lane": "context",
            "chain": chain.name,
            "workflow": None,  # else its name, parameters and steps, and none of what follows
            "task": exchange.task,  # else what a program wants for itself, and there are no stages
            "stages": stages,
            "intent": None if intent is None else _described(intent),
            "prompt": exchange.prompt,
            # None: a stage answers by itself, and no model is asked.
            "messages": None if seen is None else body["messages"],
            "parameters": {name: value for name, value in body.items() if name not in ("messages", "model")},
            "tools": self._tools(exchange) if seen is not None and AGENT_LOOP in stages else [],
            "model": self.model or body.get("model"),
            "upstream": self.core.target_of(body).pool.endpoint.name,
        }

    async def verdict(self, call: Json, exchange: Exchange) -> Json:
        """What would happen with one call of a run that has read nothing yet: its schema comes before the gate."""
        entry = self.judge.catalog.find(call["tool"], exchange)
        if entry is None:
            verdict = self.judge.gate.judge(None, Asked(call["parameters"]), tainted=False)
        else:
            asked = self.judge.asked(entry, call["parameters"], beside=level_beside(call))
            verdict = self.judge.verdict(entry, asked, tainted=False, asked_for=False)
            planned = Planned(ToolCall(id="", tool=entry.model_name, arguments=asked.arguments), entry.spec, verdict)
            verdict = (await self.judge.examined(planned, exchange)).verdict
        return {"tool": call["tool"], **asdict(verdict)}

    def _tools(self, exchange: Exchange) -> list[Json]:
        """Ours; a client's tool wins a clash of names, and an answer in another format than text has none."""
        if not wants_text(exchange.body):
            return []
        theirs = client_tools(exchange.body)
        return [
            {"name": spec.name, "requires_approval": spec.requires_approval, "category": spec.category}
            for spec in self.judge.catalog.offered(exchange)
            if spec.name not in theirs
        ]


class ExplainPages:
    """The page of one worker. `current` gives what the configuration in use explains with."""

    def __init__(self, *, current: Callable[[], Explainer], identify: Identify, admit: Callable[[], None]) -> None:
        self._current = current
        self._identify = identify
        self._admit = admit

    def routes(self) -> list[Route]:
        return [("POST", EXPLAIN_PATH, self._explain)]

    async def _explain(self, request: web.Request) -> web.StreamResponse:
        self._admit()
        explainer = self._current()
        lane, core, head = explainer.lane, explainer.core, head_of(request)
        identities = identities_of(head, core, self._identify)
        async with lane.in_use():
            caller = next(iter(identities.values())).caller
            content = await content_of(request, caller, limit_bytes=lane.body_bytes, limit_name="limits.context_body")
            await check_values(content, limit=lane.body_values)
            body = await aside(partial(chat_request, content, needs_model=False), content=content)
            calls = _calls(body.pop("calls", None))
            has_key = core.target_of(body).pool.endpoint.api_key is not None
            identity = identities.get(has_key) or self._identify(head, has_key, "context")
            run_id = request[REQUEST_ID] = new_run_id()
            exchange = await lane.exchange(head, body, identity=identity, run_id=run_id)
            answer = await explainer.explain(exchange)
            if calls is not None:
                answer["would_be_verdicts"] = await asyncio.gather(
                    *(explainer.verdict(call, exchange) for call in calls)
                )
        headers = {"Content-Type": "application/json", "x-request-id": run_id}
        return web.Response(body=orjson.dumps(answer), headers=headers)


class _Recorder:
    """Stands where the model does, and keeps what it is asked first."""

    def __init__(self) -> None:
        self.seen: Exchange | None = None
        self._asked = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> Reply:
        self.seen = self.seen or exchange
        self._asked.set()
        return Reply(_silent, _released)

    async def until_asked(self, reply: Reply) -> None:
        """Lets the chain answer until it asks the model, or is at its end. Raises what the chain does."""
        answering = asyncio.ensure_future(reply.stream(_unheard))
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait({answering, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            answering.cancel()
            await asyncio.wait({answering, asked})
        if not answering.cancelled():
            answering.result()


async def _silent(_tell: Tell) -> None:
    """A model that never says anything: the run is left before it could act on an answer."""
    await asyncio.Event().wait()


def _unheard(_chunk: Chunk) -> None:
    """Nobody reads the answer of a chain that is only explained."""


async def _released() -> None:
    """There is no call to end."""


def _calls(calls: object) -> Sequence[Json] | None:
    """The calls to judge. Raises GatewayError (invalid_field)."""
    if calls is None:
        return None
    if not isinstance(calls, list) or len(calls) > CALLS_LIMIT or not all(map(_is_call, calls)):
        raise GatewayError(
            "invalid_field",
            f'"calls" must be a list of at most {CALLS_LIMIT} objects {{"tool": "NAME", "parameters": {{...}}}}.',
            param="calls",
        )
    return calls


def _is_call(call: object) -> bool:
    return isinstance(call, dict) and isinstance(call.get("tool"), str) and isinstance(call.get("parameters"), dict)


def _described(intent: Intent) -> Json:
    return {
        "kind": intent.kind,
        "rule": intent.rule,
        "span": intent.span,
        "service": intent.service,
        "tools": intent.tools,
    }
