"""The request in which statements run, and a call with one of them."""

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange
from gateway.contracts.tools import ToolCall

EXCHANGE = Exchange(id="x", body={}, caller=Caller("ann", "acme", frozenset()), chain="assistant")


def calling(sql: str, *params: object) -> ToolCall:
    return ToolCall(id="c", tool="execute_sql", arguments={"sql": sql, "params": list(params)}, harmless=True)
