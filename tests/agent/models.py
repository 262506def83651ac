"""A model over real sockets: scripted upstreams, a core that calls them, and what came of it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson
import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Chunk, Exchange
from gateway.contracts.store import Json
from gateway.errors import GatewayError
from gateway.model.call import ModelCall
from gateway.model.target import Target
from gateway.telemetry.metrics import UpstreamTally
from gateway.testing.clock import ManualClock
from gateway.testing.peer import Peer
from gateway.testing.scripts import event, head, sse_answer
from gateway.testing.upstream import FakeUpstream, Script
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.pool import Pool
from tests.scripted_replies import told

SECRET = b"sk-the-upstreams-own-key-4711"


def chunk(content: str | None = None, *, finish: str | None = None, **more: object) -> Json:
    delta = {} if content is None else {"content": content}
    return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def stream(*chunks: Json | bytes, done: bool = True) -> bytes:
    """A whole answer; bytes are the data of an event as they are."""
    data = [one if isinstance(one, bytes) else orjson.dumps(one) for one in chunks]
    return sse_answer([event(one) for one in [*data, *([b"[DONE]"] if done else [])]])


HELLO = stream(chunk("Hel"), chunk("lo"), chunk(finish="stop"))


STREAM = head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])


def says(raw: bytes) -> Script:
    """Answers one request with exactly this, and closes."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(raw)

    return script


def exchange(header: bytes = b"", credential: bytes = b"", **body: object) -> Exchange:
    asked: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **body}
    caller = Caller("c", "t", frozenset(("context",)))
    return Exchange(id="run_1", body=asked, caller=caller, chain="main", header=header, credential=credential)


@dataclass
class Models:
    """`upstreams` and their `targets`, in the order of the configuration."""

    core: ModelCall
    upstreams: list[FakeUpstream]
    targets: list[Target]
    clock: ManualClock = field(default_factory=ManualClock)

    def outcomes(self) -> dict[str, int]:
        return dict(self.targets[0].tally.outcomes)

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
    patterns: Sequence[Sequence[str]] = ((),),
    fixed: str | None = None,
    model: str | None = None,
    **facts: object,
) -> AsyncIterator[Models]:
    """One upstream for each of `patterns`, all with the same scripts and `facts`; they are named up0, up1..."""
    clock = ManualClock()
    upstreams = [FakeUpstream(*scripts) for _ in patterns]
    targets = []
    for i, (upstream, names) in enumerate(zip(upstreams, patterns, strict=True)):
        await upstream.__aenter__()
        given: dict[str, object] = {
            "name": f"up{i}",
            "host": "127.0.0.1",
            "port": upstream.port,
            "authority": b"up.example",
            **facts,
        }
        pool = Pool(Endpoint(**given), clock=clock)  # type: ignore[arg-type]
        targets.append(Target(pool, tuple(names), UpstreamTally()))
    try:
        yield Models(ModelCall(targets, fixed=fixed, model=model, clock=clock), upstreams, targets, clock)
    finally:
        for target in targets:
            for connection in list(target.pool.open):
                connection.abort()
        for upstream in upstreams:
            await upstream.__aexit__(None, None, None)
