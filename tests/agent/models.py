"""A model over real sockets: scripted upstreams, a core that calls them, and what came of it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson
import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk, Exchange, Origin
from gateway.contracts.plugin import Counters
from gateway.contracts.storage.store import Json
from gateway.model.call import ModelCall
from gateway.model.candidates import ModelTable, Use
from gateway.model.hooks import ContextHook
from gateway.model.upstream_client import ModelUpstream
from gateway.telemetry.metrics import UpstreamTally
from gateway.testing.clock import ManualClock
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_event, build_event_stream_answer, build_head
from gateway.testing.upstream import FakeUpstream, Script
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group, GroupRules
from gateway.upstream.pool import Pool
from tests.scripted_replies import told

SECRET = b"sk-the-upstreams-own-key-4711"


def chunk(content: str | None = None, *, finish: str | None = None, **more: object) -> Json:
    delta = {} if content is None else {"content": content}
    return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def stream(*chunks: Json | bytes, done: bool = True) -> bytes:
    """A whole answer; bytes are the data of an event as they are."""
    data = [one if isinstance(one, bytes) else orjson.dumps(one) for one in chunks]
    return build_event_stream_answer([build_event(one) for one in [*data, *([b"[DONE]"] if done else [])]])


HELLO = stream(chunk("Hel"), chunk("lo"), chunk(finish="stop"))


STREAM = build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])


def says(raw: bytes) -> Script:
    """Answers one request with exactly this, and closes."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(raw)

    return script


def exchange(header: bytes = b"", credential: bytes = b"", **body: object) -> Exchange:
    asked: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **body}
    caller = Caller("c", "t", frozenset(("context",)))
    return Exchange(
        id="run_1", body=asked, caller=caller, chain="main", origin=Origin(header=header, credential=credential)
    )


@dataclass
class Models:
    """`upstreams` and their `groups`, in the order of the configuration."""

    core: ModelCall
    upstreams: list[FakeUpstream]
    groups: list[Group]
    clock: ManualClock = field(default_factory=ManualClock)

    @property
    def asked(self) -> list[int]:
        """How many requests each upstream has read."""
        return [len(upstream.requests) for upstream in self.upstreams]

    def outcomes(self) -> dict[str, int]:
        return dict(self.groups[0].tally.outcomes)

    async def ask(self, asked: Exchange | None = None) -> list[Chunk]:
        """The chunks of one answer."""
        reply = await self.core(asked or exchange())
        try:
            return await told(reply)
        finally:
            await reply.release()


async def failure(answering: Models, code: str) -> GatewayError:
    with pytest.raises(GatewayError) as failed:
        await answering.ask()
    assert failed.value.code == code
    assert SECRET.decode() not in failed.value.message
    return failed.value


@asynccontextmanager
async def models(
    *scripts: Script,
    each: Sequence[Script] = (),
    patterns: Sequence[Sequence[str]] = ((),),
    fixed: str | None = None,
    model: str | None = None,
    aliases: Mapping[str, Use] | None = None,
    endpoints: bool = False,
    most: int | None = None,
    lists_all: bool = False,
    counters: Counters | None = None,
    hooks: Sequence[ContextHook] = (),
    rules: GroupRules | None = None,
    **facts: object,
) -> AsyncIterator[Models]:
    """One upstream for each of `patterns`, all with the same scripts and `facts`; they are named up0, up1...

    With `each` there is one upstream for each of these scripts instead; or one of which these are the endpoints.
    """
    clock = ManualClock()
    upstreams = [FakeUpstream(script) for script in each] or [FakeUpstream(*scripts) for _ in patterns]
    patterns = patterns if len(patterns) == len(upstreams) else [()] * len(upstreams)
    groups, found, members = list[Group](), list[ModelUpstream](), list[Member]()
    for i, (upstream, names) in enumerate(zip(upstreams, patterns, strict=True)):
        await upstream.__aenter__()
        given: dict[str, object] = {
            "name": f"up{0 if endpoints else i}",
            "host": "127.0.0.1",
            "port": upstream.port,
            "authority": b"up.example",
            **facts,
        }
        pool = Pool(Endpoint(**given), clock=clock)  # type: ignore[arg-type]
        members.append(Member(pool, name=f"e{i}", most=most, breaker=None if rules is None else rules.breaker))
        if not endpoints or i == len(upstreams) - 1:
            groups.append(Group(f"up{len(groups)}", members, tally=UpstreamTally(), clock=clock, rules=rules))
            found.append(ModelUpstream(groups[-1], tuple(names)))
            members = []
    try:
        table = ModelTable(found, fixed=fixed, model=model, aliases=aliases or {})
        core = ModelCall(table, clock=clock, lists_all=lists_all, counters=counters, hooks=hooks)
        yield Models(core, upstreams, groups, clock)
    finally:
        for group in groups:
            for connection in [connection for member in group.members for connection in member.pool.open]:
                connection.abort()
        for upstream in upstreams:
            await upstream.__aexit__(None, None, None)
