"""Fakes for our tests, `gateway selftest` and plugin authors: raw peers, a scripted upstream, a clock, certificates."""

from gateway.testing.clock import ManualClock
from gateway.testing.peer import PEER_LEFT, Peer, Request, Response, connect, dechunk, differences, split_head
from gateway.testing.run import GatewayProcess
from gateway.testing.scripts import answer, chunk, event, head, ok, serve, sse, sse_answer
from gateway.testing.tls import Certificates, self_signed
from gateway.testing.upstream import FakeUpstream, Script

__all__ = [
    "PEER_LEFT",
    "Certificates",
    "FakeUpstream",
    "GatewayProcess",
    "ManualClock",
    "Peer",
    "Request",
    "Response",
    "Script",
    "answer",
    "chunk",
    "connect",
    "dechunk",
    "differences",
    "event",
    "head",
    "ok",
    "self_signed",
    "serve",
    "split_head",
    "sse",
    "sse_answer",
]
