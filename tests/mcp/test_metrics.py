"""The metrics of operations."""

import pytest

from gateway.mcp.metrics import OperationMetrics
from gateway.mcp.server_facts import Config
from tests.mcp.mcp_host import Clock, Counters


def test_operation_metric_has_the_opentelemetry_labels() -> None:
    """No error is an empty one."""
    counters = Counters()
    with OperationMetrics(Config(name="time", command="time"), counters=counters, clock=Clock()).operation(
        "tools/call"
    ) as operation:
        operation.error_type = ""
    assert counters.observed == [
        {
            "mcp_method_name": "tools/call",
            "network_transport": "pipe",
            "error_type": "",
        }
    ]


def test_aborted_operation_is_counted_as_cancelled() -> None:
    """An operation that breaks off counts as cancelled by itself."""
    counters, server = Counters(), Config(name="docs", url="http://x.invalid")
    with pytest.raises(KeyError), OperationMetrics(server, counters=counters, clock=Clock()).operation("tools/list"):
        raise KeyError
    assert counters.observed[0] == {
        "mcp_method_name": "tools/list",
        "network_transport": "tcp",
        "error_type": "cancelled",
    }
