"""Workers that share one store and take up each other's runs."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gateway.context.approval_mode import ApprovalModes
from gateway.context.chain import Chain, Link, fold
from gateway.context.lane import ContextLane, Handlers, LaneBounds, RequestRules
from gateway.context.resumption import RepeatedRequest, Resumption
from gateway.contracts.chat_decisions import ChatDecision
from gateway.contracts.exchange import Exchange, Handler
from gateway.contracts.exchange import Reply as ModelReply
from gateway.contracts.storage.endorsements import get_check_word
from gateway.contracts.storage.journal import StoredRun
from gateway.contracts.storage.store import Json
from gateway.runs.idempotency_key import RequestKey
from gateway.runs.live import LiveRuns
from gateway.runs.live_run import LiveRun
from tests import scripted_replies
from tests.agent.agent_bench import CALLER, Bench, call
from tests.agent.doubles import Clock
from tests.exchanges import new_exchange

HI: Json = {"role": "user", "content": "Hi"}


def risky(x: int = 1) -> str:
    return call(risk_level="high", x=x)


@dataclass
class Worker(Bench):
    """A process whose lane runs one chain around the scripted model."""

    chains: dict[str, Chain] = field(default_factory=dict)

    async def open(self) -> None:
        agents = await self.agents()
        clock = Clock(self.clock)
        links = (Link("memory", _passes), Link("agent_loop", agents.build_stage(self.limits), runs_tools=True))
        self.chains = {"main": fold("main", links, self._model, counters=self.counters, clock=clock)}
        self.runs = LiveRuns(clock=clock)
        self.lane = ContextLane(
            catalog=self.parts.in_use.judge.catalog,
            chains=self.chains,
            rules=RequestRules(
                chain="main",
                prompt="default",
                prompt_text=_no_prompt,
                prompt_names=_no_prompts,
                approval_modes=ApprovalModes(),
                service_url={}.get,
            ),
            bounds=LaneBounds(body_bytes=1000, body_values=1000, keepalive_s=10.0, status_wait_s=10.0),
            handlers=Handlers(plain=self._model, calling=self.chains["main"].handler),
            approvals=self.approvals,
            runs=self.runs,
            earlier=_no_earlier,
            close=_nothing,
        )
        self.resumption = Resumption(
            lane=lambda: self.lane,
            runs=self.runs,
            leases=self.leases,
            feed=self.feed,
            store=self.store,
            clock=clock,
            upstream_of=lambda _: "up",
        )

    async def close(self) -> None:
        await self.runs.close()
        await super().close()

    def request_key(self, *messages: Json, request_id: str = "run_1", **facts: object) -> RepeatedRequest:
        body: Json = {"model": "m", "messages": [*messages]}
        given: dict[str, object] = {"caller": CALLER, "chain": "main", "fingerprint": "f", **facts}
        exchange = new_exchange(id=request_id, body=body, **given)
        return RepeatedRequest(
            body=body, request_key=RequestKey(f"f{request_id}", None, repeats=False), exchange=exchange
        )

    async def first(self, **facts: object) -> list[Json]:
        """The first request, to its end."""
        repeated = self.request_key(HI, **facts)  # type: ignore[arg-type]
        return await whole(await self.lane.begin(repeated.exchange, repeated.request_key))

    async def message(self, text_id: str = "", *, approve: bool = True, **facts: object) -> list[Json]:
        """A chat message that decides on these approvals (default: all that are pending), in a request of its own."""
        ids = tuple(text_id.split()) or tuple(
            one.id for one in await self.pending_approvals() if one.state == "pending"
        )
        repeated = self.request_key(HI, {"role": "user", "content": f"approve {ids}"}, request_id="run_2", **facts)
        words = tuple((one.id, get_check_word(one)) for one in await self.pending_approvals())
        return await whole(
            await self.resumption.decide_and_continue([ChatDecision(approve, ids, None, words)], repeated)
        )

    async def repeat(self, **facts: object) -> LiveRun:
        repeated = self.request_key(HI, request_id="run_3", **facts)
        return await self.resumption.repeat(await self.stored(), repeated)


async def _passes(exchange: Exchange, call_next: Handler) -> ModelReply:
    return await call_next(replace(exchange, notes=(*exchange.notes, "passed")))


async def _no_prompt(_prompt_id: str, _tenant: str) -> str | None:
    return None


async def _no_prompts(_tenant: str) -> Sequence[str]:
    return ()


async def _no_earlier(*_: object) -> StoredRun | None:
    return None


async def _nothing() -> None:
    return


async def whole(run: LiveRun) -> list[Json]:
    await run.wait_for_reply()
    return list(map(scripted_replies.whole, await run.transcript.wait_for_whole()))


def context_of(told: list[Json]) -> Json:
    return {key: value for one in told for key, value in one.get("context", {}).items()}


Opened = Callable[..., "asyncio.Future[Worker]"]
