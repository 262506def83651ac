"""The test kit: checks of plugins, a host and a model for their tests, raw peers, a scripted upstream, a clock.

It needs nothing but the gateway: any test runner will do. docs/plugins.md shows its use.
"""

from gateway.testing.check_assessor import check_assessor
from gateway.testing.check_stage import check_stage
from gateway.testing.check_tool import check_tool
from gateway.testing.clock import ManualClock
from gateway.testing.contract import ContractError
from gateway.testing.host import FakeHost
from gateway.testing.model import ScriptedModel, collect_answer, make_exchange
from gateway.testing.raw_connection import PEER_LEFT, Peer, Request, Response, connect, dechunk, differences, split_head
from gateway.testing.run import GatewayProcess
from gateway.testing.scripts import answer, chunk, event, head, ok, serve, sse, sse_answer
from gateway.testing.upstream import FakeUpstream, Script

__all__ = [
    "PEER_LEFT",
    "ContractError",
    "FakeHost",
    "FakeUpstream",
    "GatewayProcess",
    "ManualClock",
    "Peer",
    "Request",
    "Response",
    "Script",
    "ScriptedModel",
    "answer",
    "check_assessor",
    "check_stage",
    "check_tool",
    "chunk",
    "collect_answer",
    "connect",
    "dechunk",
    "differences",
    "event",
    "head",
    "make_exchange",
    "ok",
    "serve",
    "split_head",
    "sse",
    "sse_answer",
]
