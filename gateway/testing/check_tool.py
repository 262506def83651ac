"""The check of a tool: its definitions, its refusals without effects, its calls as results, and its end."""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from gateway.contracts.plugin import Plugin
from gateway.contracts.risk import RISK_LEVEL
from gateway.contracts.tools import ToolCall, ToolResult, ToolSource, ToolSpec
from gateway.testing.contract import ContractError, Subject, load_subject, run
from gateway.testing.host import FakeHost
from gateway.testing.model import make_exchange
from gateway.testing.raw_connection import PATIENCE_S
from gateway.tools.catalog import CatalogError, ConfiguredSource, load_catalog
from gateway.tools.schema import Schemas

#: Values for refusals; values that a schema does not accept never reach a tool.
_VALUES: Final[tuple[Any, ...]] = (
    "",
    " ",
    "x",
    "..",
    "\0",
    "x" * 100_000,
    0,
    -1,
    10**9,
    0.5,
    True,
    [],
    ["x"],
    {},
    None,
)
_DESCRIPTORS: Final = Path("/dev/fd")
#: Steps of the event loop before a call is cancelled: at the first, and after some of its work.
_CANCELLED_AFTER: Final = (1, 3, 10)


def check_tool(
    plugin: str | Plugin[Any, Any],
    config: Mapping[str, object] | None = None,
    *,
    folder: Path | None = None,
    host: FakeHost | None = None,
    calls: Iterable[Mapping[str, object] | ToolCall] = (),
    refused: Iterable[Mapping[str, object] | ToolCall] = (),
    state: Callable[[], object] | None = None,
) -> ToolSource:
    """Check a tool against the rules of docs/plugins.md, and return one, built for `host`, for further tests.

    `plugin` is a name as after `use:`, with the `folder` of your plugins if it is there, or a `Plugin`; `config` is
    its `with:`. `calls` run, several times, and must be let through by `refusal`; `refused` must not. Each is the
    arguments of the source's first tool, or a ToolCall. `state` returns what calls may change (such as the files of a
    folder): a refusal and a refused call must leave it as it is. No other calls run. Raises ContractError.
    """
    host = host or FakeHost()
    one = load_subject("tools", plugin, config, folder)
    one.build(host.copy())  # needs no event loop
    samples = _Samples(list(calls), list(refused), state or _observe_nothing)
    run(partial(_check, one, host, samples))
    source: ToolSource = one.build(host)
    return source


@dataclass(frozen=True, slots=True)
class _Samples:
    """The calls that a test gave, and how it sees their effects."""

    calls: Sequence[Mapping[str, object] | ToolCall]
    refused: Sequence[Mapping[str, object] | ToolCall]
    state: Callable[[], object]


def _observe_nothing() -> None:
    """Return nothing: this test does not watch the effects."""


async def _check(one: Subject, host: FakeHost, samples: _Samples) -> None:
    async with host.copy() as inside:
        before = _open_things()
        source: ToolSource = one.build(inside)
        _check_methods(one, source)
        specs = await _check_specs(one, source)
        for call in _iterate_probes(specs):
            await _check_refusal(one, source, call, samples.state)
        for sample in samples.refused:
            await _check_refused(one, source, _call(specs, sample), samples.state)
        for sample in samples.calls:
            await _check_call(one, source, _call(specs, sample), samples.state)
            for steps in _CANCELLED_AFTER:
                await _check_cancelled(one, source, _call(specs, sample), steps)
        await _check_close(one, source, before)
        unused: ToolSource = one.build(inside)
        await _check_close(one, unused, before)


def _check_methods(one: Subject, source: ToolSource) -> None:
    for name in ("list_tools", "refusal", "call", "close"):
        if not inspect.iscoroutinefunction(getattr(source, name, None)):
            instead = f"write `async def {name}` (gateway.plugin.ToolSource)"
            one.fail("is a ToolSource", f"it has no asynchronous {name!r}", instead, at=source)


async def _check_specs(one: Subject, source: ToolSource) -> Sequence[ToolSpec]:
    first, second = list(await source.list_tools()), list(await source.list_tools())
    if not first:
        one.fail("offers a tool", "list_tools returned none", "return at least one ToolSpec", at=source)
    if first != second:
        instead = "return the same ToolSpecs as long as the source exists"
        one.fail("its tools are stable", f"list_tools returned {first}, then {second}", instead, at=source)
    try:
        await load_catalog({one.name: ConfiguredSource(source)})
    except CatalogError as error:
        one.fail("its tools have names of their own", str(error), "name each tool of the source differently", at=source)
    for spec in first:
        _check_spec(one, source, spec)
    return first


def _check_spec(one: Subject, source: ToolSource, spec: ToolSpec) -> None:
    if not spec.description.strip():
        one.fail("each tool has a description", f"{spec.name!r} has none", "describe it for the model", at=source)
    schema = spec.parameters
    problem = Schemas().find_problem(spec, {})
    if not isinstance(schema, dict) or schema.get("type") != "object" or "the definition of" in (problem or ""):
        found = f"parameters of {spec.name!r}: {problem or schema}"
        one.fail("parameters are a JSON Schema of type object", found, "correct the schema", at=source)
    if RISK_LEVEL in schema.get("properties", {}):
        found = f"parameters of {spec.name!r} name {RISK_LEVEL!r}"
        one.fail(f"{RISK_LEVEL} is the gateway's", found, "remove it: the gateway adds and reads it", at=source)
    if "additionalProperties" not in schema and "unevaluatedProperties" not in schema:
        found = f"parameters of {spec.name!r} accept every argument"
        instead = 'write "additionalProperties": False, so that the model learns of a misspelt argument'
        one.fail("unknown arguments are errors", found, instead, at=source)


def _call(specs: Sequence[ToolSpec], sample: Mapping[str, object] | ToolCall) -> ToolCall:
    """Return a call of the first tool, or the call as the test made it; the gateway checks arguments first."""
    call = sample if isinstance(sample, ToolCall) else ToolCall(id="call_1", tool=specs[0].name, arguments=dict(sample))
    spec = next((spec for spec in specs if spec.name == call.tool), None)
    problem = f"there is no tool {call.tool!r}" if spec is None else Schemas().find_problem(spec, call.arguments)
    if problem is not None:
        raise ContractError(f"the test's call {call} never reaches the tool: {problem}: correct its arguments")
    return call


def _iterate_probes(specs: Sequence[ToolSpec]) -> Iterator[ToolCall]:
    """Yield calls with odd arguments that their schema accepts: the gateway would ask for the refusal of each."""
    schemas = Schemas()
    for spec in specs:
        properties: Mapping[str, Any] = spec.parameters.get("properties", {})
        usual: dict[str, Any] = {}
        for name in spec.parameters.get("required", ()):
            choices = (*properties.get(name, {}).get("enum", ()), "x", 1, True, ["x"], {}, None)
            fits = (value for value in choices if _fits(schemas, spec, name, value))
            usual[name] = next(fits, None)
        for arguments in (usual, *({**usual, name: value} for name in properties for value in _VALUES)):
            if schemas.find_problem(spec, arguments) is None:
                yield ToolCall(id="call_1", tool=spec.name, arguments=arguments)


def _fits(schemas: Schemas, spec: ToolSpec, name: str, value: object) -> bool:
    """Return whether the schema has nothing against this value at its place."""
    problem = schemas.find_problem(spec, {name: value}) or ""
    return not any(one.startswith((f"{name}:", f"{name}.")) for one in problem.split("; "))


async def _check_refusal(one: Subject, source: ToolSource, call: ToolCall, state: Callable[[], object]) -> str | None:
    """Return the refusal of a call, after every rule that holds for all of them."""
    exchange, before, seen = make_exchange(), deepcopy(call.arguments), state()
    shown = f"the refusal of {str(call.arguments)[:200]}"
    try:
        text = await source.refusal(call, exchange)
        again = await source.refusal(call, exchange)
    except Exception as error:
        one.fail("refusal never raises", f"{shown} raised {error!r}", "return the reason as a text", at=source.refusal)
    if text is not None and not (isinstance(text, str) and text.strip()):
        instead = "return a sentence for the model, or None"
        one.fail("a refusal is a text", f"{shown} is {text!r}", instead, at=source.refusal)
    if text != again:
        instead = "make it depend on the call and the exchange alone"
        one.fail("a refusal is stable", f"{shown} is {text!r}, then {again!r}", instead, at=source.refusal)
    if call.arguments != before:
        one.fail("does not change its arguments", f"{shown} did", "work on a copy", at=source.refusal)
    if state() != seen:
        one.fail("refusal has no effects", f"{shown} changed the state", "leave effects to `call`", at=source.refusal)
    return text


async def _check_refused(one: Subject, source: ToolSource, call: ToolCall, state: Callable[[], object]) -> None:
    refusal = await _check_refusal(one, source, call, state)
    if refusal is None:
        found = f"{call.arguments} is not refused"
        one.fail("refuses what can never succeed", found, "return the reason in `refusal`", at=source.refusal)
    before = state()
    result = await _check_result(one, source, call)
    if result != ToolResult(refusal, ok=False):
        found = f"{call.arguments} is refused with {refusal!r}, and `call` returned {result}"
        instead = (
            "begin `call` with: if refusal := await self.refusal(call, exchange): return ToolResult(refusal, ok=False)"
        )
        one.fail("refusal and call agree", found, instead, at=source.call)
    if state() != before:
        instead = "refuse before the first effect"
        one.fail("a refused call has no effects", f"{call.arguments} changed the state", instead, at=source.call)


async def _check_call(one: Subject, source: ToolSource, call: ToolCall, state: Callable[[], object]) -> None:
    if (refusal := await _check_refusal(one, source, call, state)) is not None:
        found = f"{call.arguments} is refused: {refusal}"
        one.fail("lets possible calls through", found, "correct `refusal`, or the test", at=source.refusal)
    before = deepcopy(call.arguments)
    await _check_result(one, source, call)
    if call.arguments != before:
        found = f"{before} became {call.arguments}"
        one.fail("does not change its arguments", found, "work on a copy", at=source.call)


async def _check_result(one: Subject, source: ToolSource, call: ToolCall) -> ToolResult:
    try:
        result: Any = await source.call(call, make_exchange())
    except Exception as error:
        instead = "return ToolResult(TEXT, ok=False): the model reads why"
        one.fail("a failure is a result", f"{call.arguments} raised {error!r}", instead, at=source.call)
    if not (isinstance(result, ToolResult) and isinstance(result.content, str)):
        found = f"{call.arguments} returned {result!r}"
        one.fail("call returns a ToolResult", found, "return ToolResult(TEXT)", at=source.call)
    return result


async def _check_cancelled(one: Subject, source: ToolSource, call: ToolCall, steps: int) -> None:
    """Cancel a call after some steps of the event loop: it must end, and leave no task behind."""
    others = asyncio.all_tasks()
    task = asyncio.ensure_future(source.call(call, make_exchange()))
    for _ in range(steps):
        await asyncio.sleep(0)
    was_running = task.cancel()
    done, _ = await asyncio.wait({task}, timeout=PATIENCE_S)
    instead = "raise asyncio.CancelledError again wherever you catch it, and await the tasks that you cancel"
    if not done:
        one.fail("a cancelled call ends", f"{call.arguments} goes on", instead, at=source.call)
    if was_running and not task.cancelled():
        found = f"{call.arguments} ended with {task.exception() or task.result()!r}"
        one.fail("a cancelled call ends", found, instead, at=source.call)
    if left := asyncio.all_tasks() - others - {task}:
        one.fail("a cancelled call ends its effects", f"it left {left}", instead, at=source.call)


async def _check_close(one: Subject, source: ToolSource, before: tuple[int, int]) -> None:
    try:
        await source.close()
        await source.close()
    except Exception as error:
        one.fail("close can be called twice", f"it raised {error!r}", "do nothing the second time", at=source.close)
    tasks, files = _open_things()
    if tasks > before[0] or files > before[1]:
        found = f"{tasks - before[0]} tasks and {files - before[1]} open files or connections are left"
        one.fail("close closes what it opened", found, "close and await each of them in `close`", at=source.close)


def _open_things() -> tuple[int, int]:
    """Return how many tasks there are and, where the system shows it, how many open files and connections."""
    return len(asyncio.all_tasks()), len(list(_DESCRIPTORS.iterdir())) if _DESCRIPTORS.is_dir() else 0
