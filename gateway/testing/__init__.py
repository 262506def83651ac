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
from gateway.testing.raw_connection import (
    PEER_LEFT,
    Peer,
    Request,
    Response,
    connect,
    dechunk,
    describe_differences,
    split_head,
)
from gateway.testing.run import GatewayProcess
from gateway.testing.scripts import (
    build_answer,
    build_chunk,
    build_event,
    build_event_stream,
    build_event_stream_answer,
    build_head,
    build_ok_answer,
    serve,
)
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
    "build_answer",
    "build_chunk",
    "build_event",
    "build_event_stream",
    "build_event_stream_answer",
    "build_head",
    "build_ok_answer",
    "check_assessor",
    "check_stage",
    "check_tool",
    "collect_answer",
    "connect",
    "dechunk",
    "describe_differences",
    "make_exchange",
    "serve",
    "split_head",
]
