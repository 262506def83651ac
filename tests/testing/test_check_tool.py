"""The check of tools finds each broken rule."""

import asyncio
import contextlib
import re
import socket
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar

import pytest

from gateway.contracts.exchange import Exchange
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall, ToolResult, ToolSpec
from gateway.testing import ContractError, check_tool

from .rule_keepers import Words, plugin_of

RUNS, REFUSED = {"text": "one two"}, {"text": ""}


class NoClose(Words):
    close = None  # type: ignore[assignment]


class NoTools(Words):
    async def list_tools(self) -> Sequence[ToolSpec]:
        return []


class Unstable(Words):
    numbers = count()

    async def list_tools(self) -> Sequence[ToolSpec]:
        return [replace(spec, description=f"{next(self.numbers)}") for spec in await Words().list_tools()]


class Twice(Words):
    async def list_tools(self) -> Sequence[ToolSpec]:
        return [*await Words().list_tools()] * 2


class NoDescription(Words):
    async def list_tools(self) -> Sequence[ToolSpec]:
        return [replace(spec, description=" ") for spec in await Words().list_tools()]


class NoSchema(Words):
    parameters: ClassVar[Json] = {
        "type": "object",
        "properties": {"text": {"type": "txet"}},
        "additionalProperties": False,
    }


class NoObject(Words):
    parameters: ClassVar[Json] = {"type": "string", "additionalProperties": False}


class OwnRisk(Words):
    parameters: ClassVar[Json] = {"type": "object", "properties": {"risk_level": {}}, "additionalProperties": False}


class Open(Words):
    parameters: ClassVar[Json] = {"type": "object", "properties": {"text": {}}}


class RefusalRaises(Words):
    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        return None if call.arguments["text"][0] else "x"


class RefusalIsFalse(Words):
    async def refusal(self, call: ToolCall, exchange: Exchange) -> Any:
        return False


class RefusalChanges(Words):
    numbers = count()

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        return f"No {next(self.numbers)}."


class RefusalMutates(Words):
    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        call.arguments["text"] = call.arguments["text"].strip() + "!"
        return None


EFFECTS: list[str] = []


class RefusalWrites(Words):
    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        EFFECTS.append("refusal")
        return await super().refusal(call, exchange)


class RefusedWrites(Words):
    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        EFFECTS.append("call")
        return await super().call(call, exchange)


class Disagrees(Words):
    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        return ToolResult("0")


class NeverRefuses(Words):
    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        return None


class AlwaysRefuses(Words):
    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        return "The text is empty."


class CallMutates(Words):
    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        result = await super().call(call, exchange)
        call.arguments.clear()
        return result


class CallRaises(Words):
    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        if call.arguments["text"]:
            raise OSError("gone")
        return await super().call(call, exchange)


class CallReturnsText(Words):
    async def call(self, call: ToolCall, exchange: Exchange) -> Any:
        return "2" if call.arguments["text"] else await super().call(call, exchange)


async def _some_steps() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class SwallowsCancel(Words):
    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        with contextlib.suppress(asyncio.CancelledError):
            await _some_steps()
        return await super().call(call, exchange)


class LeavesTask(Words):
    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        self.work = asyncio.ensure_future(_some_steps())
        await asyncio.shield(self.work)
        return await super().call(call, exchange)


class ClosesOnce(Words):
    def __init__(self) -> None:
        self.things = ["thing"]

    async def close(self) -> None:
        self.things.pop()


class LeavesSocket(Words):
    opened: ClassVar[list[socket.socket]] = []

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        self.opened.append(socket.socket())
        return await super().call(call, exchange)


@pytest.mark.parametrize(
    ("tool", "rule", "place"),
    [
        (NoClose, "is a ToolSource", "NoClose"),
        (NoTools, "offers a tool", "NoTools"),
        (Unstable, "its tools are stable", "Unstable"),
        (Twice, "its tools have names of their own", "Twice"),
        (NoDescription, "each tool has a description", "NoDescription"),
        (NoSchema, "parameters are a JSON Schema of type object", "NoSchema"),
        (NoObject, "parameters are a JSON Schema of type object", "NoObject"),
        (OwnRisk, "risk_level is the gateway's", "OwnRisk"),
        (Open, "unknown arguments are errors", "Open"),
        (RefusalRaises, "refusal never raises", "RefusalRaises.refusal"),
        (RefusalIsFalse, "a refusal is a text", "RefusalIsFalse.refusal"),
        (RefusalChanges, "a refusal is stable", "RefusalChanges.refusal"),
        (RefusalMutates, "does not change its arguments", "RefusalMutates.refusal"),
        (RefusalWrites, "refusal has no effects", "RefusalWrites.refusal"),
        (RefusedWrites, "a refused call has no effects", "RefusedWrites.call"),
        (Disagrees, "refusal and call agree", "Disagrees.call"),
        (NeverRefuses, "refuses what can never succeed", "NeverRefuses.refusal"),
        (AlwaysRefuses, "lets possible calls through", "AlwaysRefuses.refusal"),
        (CallMutates, "does not change its arguments", "CallMutates.call"),
        (CallRaises, "a failure is a result", "CallRaises.call"),
        (CallReturnsText, "call returns a ToolResult", "CallReturnsText.call"),
        (SwallowsCancel, "a cancelled call ends", "SwallowsCancel.call"),
        (LeavesTask, "a cancelled call ends its effects", "LeavesTask.call"),
        (ClosesOnce, "close can be called twice", "ClosesOnce.close"),
        (LeavesSocket, "close closes what it opened", "close"),
    ],
)
def test_broken_tool_rule_is_reported_with_place_and_fix(tool: type[Words], rule: str, place: str) -> None:
    """With the place, and what to do."""
    told = rf"(?s)breaks the rule \"?'?{re.escape(rule)}'?\"?: .+ To fix it: .+docs/plugins.md"
    with pytest.raises(ContractError, match=told) as error:
        check_tool(plugin_of(tool), calls=[RUNS], refused=[REFUSED], state=lambda: len(EFFECTS))
    assert re.search(rf"\.py:\d+, (\w+\.)?{place} breaks", str(error.value))
    for opened in LeavesSocket.opened:
        opened.close()


def test_a_tool_that_keeps_the_rules_passes() -> None:
    """And is there for further tests. Without calls nothing of it runs."""
    assert isinstance(check_tool(plugin_of(Words), calls=[RUNS], refused=[REFUSED]), Words)
    call = ToolCall(id="c", tool="words", arguments=RUNS)
    assert isinstance(check_tool(plugin_of(Words), calls=[call]), Words)
    before = len(EFFECTS)
    check_tool(plugin_of(RefusedWrites))
    assert len(EFFECTS) == before


@pytest.mark.parametrize(
    "call",
    [{"txet": "a"}, {"text": 1}, ToolCall(id="c", tool="other", arguments=RUNS)],
    ids=["unknown argument", "another type", "another tool"],
)
def test_contract_check_refuses_calls_invalid_by_schema(call: Any) -> None:
    """What the gateway refuses by the schema tests nothing."""
    with pytest.raises(ContractError, match=r"never reaches the tool: .*: correct its arguments"):
        check_tool(plugin_of(Words), calls=[call])
