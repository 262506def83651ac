"""The pages of approvals and runs behind the real listener, on a real store, with keys of two tenants."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import ClientSession, web

from gateway.api.approvals import ApprovalPages
from gateway.api.decisions import ApiContext
from gateway.api.events.pages import EventPages
from gateway.api.events.socket import SocketPages
from gateway.api.grants import RememberedPages
from gateway.api.memories import MemoryPages
from gateway.api.runs import RunPages
from gateway.approvals.approvals import Approvals
from gateway.approvals.previews import Previews
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.journal import Approval, Change, DecisionResult, DecisionWrite, RunEvent, StoredRun
from gateway.contracts.storage.store import Json, StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.event_feed import EventFeed
from gateway.telemetry.counters import ContextCounters
from gateway.tools.catalog import Catalog
from gateway.tools.decision_rules import DecisionRules
from gateway.tools.grants import ApprovalBinding
from tests.lanes.assembled import Lane, assembled
from tests.plugins.stores.records import event, new, parked, run

from .answering import errors

#: The records' time, before their approvals expire.
NOW_S = 200.0
BINDING = ApprovalBinding("d" * 64, "b" * 64)

KEYS: Mapping[str, Caller] = {
    "boss": Caller("bob", "acme", frozenset(("context", "approve"))),
    "agent": Caller("ann", "acme", frozenset(("context",))),
    "console": Caller("con", "acme", frozenset(("approve",))),
    "reader": Caller("rex", "acme", frozenset(("passthrough",))),
    "root": Caller("root", "acme", frozenset(("admin",))),
    "rival": Caller("eve", "other", frozenset(("context", "approve"))),
    "spy": Caller("sly", "other", frozenset(("context",))),
}


@dataclass
class Wall:
    """A clock that a test sets."""

    now_s: float = NOW_S

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s


class Ledger(SqliteStore):
    """The real store; `full` is its disk. A decision is told once `answers` is set."""

    full = False

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.ruled, self.answers = asyncio.Event(), asyncio.Event()
        self.answers.set()

    async def write(self, change: Change) -> None:
        self._fail_if_full()
        await super().write(change)

    async def decide_approvals(
        self, writes: Sequence[DecisionWrite]
    ) -> Sequence[tuple[DecisionResult, Approval | None]]:
        self._fail_if_full()
        ruled = await super().decide_approvals(writes)
        self.ruled.set()
        await self.answers.wait()
        return ruled

    async def list_events(self, **which: object) -> list[RunEvent]:  # type: ignore[override]
        self._fail_if_full()
        return await super().list_events(**which)  # type: ignore[arg-type, return-value]

    def _fail_if_full(self) -> None:
        if self.full:
            raise StoreError("database or disk is full")


@dataclass
class Judges:
    """Tools and policy: as the records' approvals are bound to them, until a test changes that."""

    bound: ApprovalBinding | None = BINDING
    refuses: bool = False
    rules: DecisionRules = field(default_factory=DecisionRules)

    def find_binding(self, tool: str) -> ApprovalBinding | None:
        return self.bound

    def judge_edit(self, tool: str, arguments: Json) -> Verdict:
        return Verdict("deny" if self.refuses else "confirm", "default", "unknown_command", "it is not on the list")

    def find_client_refusal(self, exchange: Exchange) -> str | None:
        return None


@dataclass
class ServedApprovals:
    """What a test looks at. `resumed` are the runs that were let go on."""

    store: Ledger
    feed: EventFeed
    clock: Wall = field(default_factory=Wall)
    judges: Judges = field(default_factory=Judges)
    keys: dict[str, Caller] = field(default_factory=lambda: dict(KEYS))
    resumed: list[str] = field(default_factory=list)
    resumes: bool = True
    keepalive_s: float = 10.0
    catalog: Catalog = field(default_factory=lambda: Catalog(()))

    def __post_init__(self) -> None:
        self._keys_in_use = dict(self.keys)
        self.approvals = Approvals(
            self.store,
            self.feed,
            self.judges,
            counters=ContextCounters(),
            clock=self.clock,
            expires_s=800.0,
            on_reject="abort",
        )
        self.api = ApiContext(
            approvals=lambda: self.approvals,
            catalog=lambda: self.catalog,
            previews=Previews(),
            store=self.store,
            feed=self.feed,
            authorise=self.authorise,
            resume=self.resume,
            clock=self.clock,
        )
        self.approval_pages = ApprovalPages(self.api)
        self.remembered = RememberedPages(self.api)
        self.memories = MemoryPages(store=self.store, authorise=self.authorise)
        self.runs = RunPages(self.api)
        self.events = EventPages(self.api, keepalive_s=self.keepalive_s)
        self.sockets = SocketPages(self.api, keys=self.keys_in_use)

    def authorise(self, request: web.Request, *scopes: str) -> Caller:
        caller = self.keys.get(request.headers.get("X-Gateway-Key", ""))
        if caller is None:
            raise GatewayError("missing_api_key", "No key.")
        if not caller.scopes & set(scopes):
            raise GatewayError("scope_missing", "Another key.")
        return caller

    def keys_in_use(self) -> object:
        """The same as long as the keys are."""
        if self._keys_in_use != self.keys:
            self._keys_in_use = dict(self.keys)
        return self._keys_in_use

    async def resume(self, run_id: str) -> None:
        self.resumed.append(run_id)
        if not self.resumes:
            raise StoreError("not now")

    async def happens(self, kind: str = "step.started", **facts: object) -> None:
        """One more event of the run `run_1`."""
        there = await self.store.run("run_1", tenant="acme")
        assert there is not None
        await self.store.write(Change(run=there, events=(event(kind, **facts),)))
        self.feed.nudge()

    async def ends(self) -> None:
        there = await self.store.run("run_1", tenant="acme")
        assert there is not None
        done = StoredRun(**{**_facts(there), "state": "completed"})
        await self.store.write(Change(run=done, events=(event("run.finished", data=b'{"state":"completed"}'),)))
        self.feed.nudge()


def _facts(there: StoredRun) -> dict[str, object]:
    return {name: getattr(there, name) for name in StoredRun.__slots__}


@dataclass
class Desktop:
    """A client of the pages."""

    office: ServedApprovals
    lane: Lane
    session: ClientSession

    def url(self, path: str, *, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.lane.port}{path}"

    async def ask(self, method: str, path: str, body: object = None, *, key: str = "boss") -> tuple[int, Json]:
        """Status and answer; an error is told by `error`, without its request id."""
        headers = {"X-Gateway-Key": key}
        async with self.session.request(method, self.url(path), json=body, headers=headers) as response:
            content = await response.read()
            return response.status, (await response.json()) if content else {}

    async def get(self, path: str, *, key: str = "boss") -> tuple[int, Json]:
        return await self.ask("GET", path, key=key)

    async def post(self, path: str, body: object = None, *, key: str = "boss") -> tuple[int, Json]:
        return await self.ask("POST", path, body, key=key)


@asynccontextmanager
async def opened(*changes: Change, keepalive_s: float = 10.0) -> AsyncIterator[Desktop]:
    """The office after these changes; without any, with the run `run_1` that waits for `ap_1`."""
    store = Ledger(":memory:")
    await store.open()
    feed = EventFeed(store)
    try:
        for change in changes or (parked(),):
            await store.write(change)
        office = ServedApprovals(store, feed, keepalive_s=keepalive_s)
        app = web.Application(middlewares=[errors])
        pages = (office.approval_pages, office.remembered, office.memories, office.runs, office.events, office.sockets)
        for method, path, handler in (route for page in pages for route in page.list_routes()):
            app.router.add_route(method, path, handler)
        async with assembled(pages=app) as lane, ClientSession() as session:
            yield Desktop(office, lane, session)
    finally:
        await feed.close()
        await store.close()


def code_of(answer: tuple[int, Json]) -> tuple[int, str]:
    return answer[0], answer[1]["error"]["code"]


def going(**changes: object) -> Change:
    """The first change of a run that is under way."""
    return new(run(**changes))
