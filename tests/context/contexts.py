"""A context lane whose chain a test plays, and a server whose page answers with its runs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from agent.doubles import Clock
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from gateway.approvals.approvals import Approvals
from gateway.auth.keyring import Identity
from gateway.context.approval_mode import ApprovalModes
from gateway.context.chain import Chain
from gateway.context.lane import ContextLane, Handlers, LaneBounds, RequestRules
from gateway.contracts.caller import LOCAL, Caller
from gateway.contracts.exchange import Emit, Exchange, Intent, Reply, StoredRun
from gateway.contracts.storage.store import Json
from gateway.dialects.chat.dialect import DIALECT, parse_request
from gateway.http.request_head import RequestHead
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.event_feed import EventFeed
from gateway.runs.idempotency_key import RequestKey
from gateway.runs.live import LiveRuns
from gateway.telemetry.counters import ContextCounters
from gateway.testing.clock import ManualClock
from gateway.tools.call_evaluator import Judge
from gateway.tools.catalog import Catalog, CatalogEntry
from gateway.tools.gate import Gate, Policy
from tests.lanes.assembled import read
from tests.tools.doubles import Source, spec

BODY: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
NOBODY = Identity(LOCAL, frozenset((b"x-gateway-key",)))


#: Status, header, body.
Told = tuple[int, Mapping[str, str], bytes]


def head(*lines: bytes) -> RequestHead:
    return read(b"\r\n".join((b"POST /context/v1/chat/completions HTTP/1.1", b"Host: gw", *lines, b"", b"")))


def _entry(name: str) -> CatalogEntry:
    source = Source(spec(name))
    return CatalogEntry(source.specs[0], source, name)


@dataclass
class World:
    """A lane whose chain `main` streams what a test puts into `chunks`; None ends the answer."""

    lane: ContextLane = field(init=False)
    chunks: asyncio.Queue[Json | Exception | None] = field(default_factory=asyncio.Queue)
    closed: int = 0
    released: int = 0
    intent: Intent | None = None
    approvals: ApprovalModes = field(default_factory=ApprovalModes)

    def __post_init__(self) -> None:
        clock = Clock(ManualClock())
        self.lane = ContextLane(
            catalog=Catalog([_entry("read_note"), _entry("now")]),
            chains={name: Chain(name, (), self._handle, ()) for name in ("main", "other")},
            rules=RequestRules(
                chain="main",
                prompt="default",
                prompt_text=self._prompt,
                prompt_names=self._prompt_names,
                approval_modes=self.approvals,
                service_url={}.get,
            ),
            bounds=LaneBounds(body_bytes=1000, body_values=1000, keepalive_s=10.0, status_wait_s=10.0),
            handlers=Handlers(plain=self._handle, calling=self._handle),
            approvals=self._approvals(clock),
            runs=LiveRuns(clock=clock),
            earlier=self._earlier,
            close=self._close,
        )

    async def exchange(self, *lines: bytes, **body: object) -> Exchange:
        return await self.lane.build_exchange(head(*lines), {**BODY, **body}, identity=NOBODY, run_id="run_7")

    async def _handle(self, _exchange: Exchange) -> Reply:
        return Reply(self._stream, self._release, self.intent)

    async def _stream(self, emit: Emit) -> None:
        while (chunk := await self.chunks.get()) is not None:
            if isinstance(chunk, Exception):
                raise chunk
            if (pause := emit(chunk)) is not None:
                await pause()

    async def _release(self) -> None:
        self.released += 1

    async def _close(self) -> None:
        self.closed += 1

    @staticmethod
    async def _prompt(prompt_id: str, _tenant: str) -> str | None:
        return "You help." if prompt_id in ("default", "pirate") else None

    @staticmethod
    async def _prompt_names(_tenant: str) -> Sequence[str]:
        return ["default", "pirate"]

    @staticmethod
    async def _earlier(_asking: RequestKey, _caller: Caller) -> StoredRun | None:
        return None

    @staticmethod
    def _approvals(clock: Clock) -> Approvals:
        """Return approvals for chains in which no person is asked."""
        store = SqliteStore(":memory:")
        judge = Judge(Catalog(()), Gate(Policy(trust_llm="never", default="confirm"), {}))
        return Approvals(
            store, EventFeed(store), judge, counters=ContextCounters(), clock=clock, expires_s=60.0, on_reject="abort"
        )


@asynccontextmanager
async def request_key(world: World, **body: object) -> AsyncIterator[Callable[..., Coroutine[None, None, Told]]]:
    """A server whose one page answers with a run of this body; what is given asks it and reads the whole answer.

    `heard`, if given, gets all that was read so far each time something arrives.
    """

    async def page(request: web.Request) -> web.StreamResponse:
        run = await world.lane.begin(await world.exchange(**body), RequestKey("f" * 64, None, repeats=False))
        asked = parse_request(run.exchange.body)
        answer = DIALECT.build_writer(asked, run_id=run.request_id, created_s=run.created_s)
        return await world.lane.send_answer(request, run, answer, streams=asked.streams)

    app = web.Application()
    app.router.add_post("/", page)
    async with TestServer(app) as server, ClientSession() as session:

        async def ask(heard: Callable[[bytes], object] = len) -> Told:
            raw = b""
            async with session.post(server.make_url("/")) as response:
                async for data in response.content.iter_any():
                    raw += data
                    heard(raw)
                return response.status, response.headers, raw

        yield ask
        await world.lane.runs.close()
