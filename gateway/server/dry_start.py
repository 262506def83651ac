"""The start of a gateway without a gateway: all that it builds is built, and nothing serves, connects or is written.

So `gateway check-config` refuses what the start would refuse, and shows what the start would only log.
"""

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NoReturn

from gateway.aio.clock import SystemClock
from gateway.config import ConfigError, LoadedConfig, Problem, Settings
from gateway.config.decision_checks import list_decision_warnings
from gateway.config.schema.mcp import McpServer
from gateway.mcp.registration import build_options
from gateway.mcp.sdk_import import MISSING_SDK
from gateway.mcp.transport.process import Program, find_start_problem
from gateway.registry.loader import PluginProblem
from gateway.registry.stores import build_scratch_store, build_store, get_store_address
from gateway.runs.live import LiveRuns
from gateway.server.context_lane import LaneServices, build_context_lane, build_shared
from gateway.server.lanes.rights import build_key_ring
from gateway.server.lanes.upstreams import build_groups
from gateway.telemetry.counters import ContextCounters
from gateway.telemetry.metrics import Metrics
from gateway.tools.catalog import find_obstacles
from gateway.workflows.folder import load_workflows

log = logging.getLogger("gateway")


async def rehearse_start(loaded: LoadedConfig) -> list[str]:
    """Return the start's warnings. Raises ConfigError with everything that would keep it from serving."""
    settings = loaded.settings
    heard, problems = (
        _LogCapture(logging.WARNING),
        [*_store_problems(settings, loaded.folder), *_serve_problems(settings)],
    )
    log.addHandler(heard)
    try:
        async with AsyncExitStack() as stack:
            assembled = await _build_lane(loaded, stack)
            obstacles = [obstacle async for obstacle in find_obstacles(assembled.explainer.judge.catalog.sources)]
    except ConfigError as error:
        problems += error.problems
    finally:
        log.removeHandler(heard)
    if problems:
        raise ConfigError(tuple(problems))
    known = load_workflows(settings.workflows).warnings  # reported when the file was read
    own = (*list_decision_warnings(settings), *obstacles, *_iterate_service_problems(settings))
    return [*own, *(text for text in heard.texts if text not in known)]


class _LogCapture(logging.Handler):
    """A log handler that stores its records."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


async def _build_lane(loaded: LoadedConfig, stack: AsyncExitStack) -> LaneServices:
    """Build the context lane as a worker has it, on a store in memory. Raises ConfigError."""
    clock = SystemClock()
    store = build_scratch_store()
    await store.open()
    stack.push_async_callback(store.close)
    assembled = await build_context_lane(
        loaded.settings,
        groups=build_groups(loaded.settings.upstreams, metrics=Metrics(), clock=clock.monotonic),
        keys=build_key_ring(loaded.settings),
        shared=build_shared(
            store,
            runs=LiveRuns(clock=clock),
            counters=ContextCounters(),
            clock=clock,
            resume=_refuse_to_run,
            equipment=_refuse_to_run,
            settings=lambda: loaded.settings,
        ),
    )
    stack.push_async_callback(assembled.lane.retire)
    return assembled


def _refuse_to_run(*run: object) -> NoReturn:
    raise RuntimeError(f"nothing runs here: {run!r}")


def _store_problems(settings: Settings, folder: Path) -> Iterator[Problem]:
    """Return why the store could not be opened; its file is not made."""
    try:
        problem = get_store_address(settings, folder=folder).problem()
        build_store(settings, folder=folder)
    except PluginProblem as error:
        problem = error.message
    if problem is not None:
        yield Problem("configuration", "store", problem)


def _serve_problems(settings: Settings) -> Iterator[Problem]:
    """Return why the endpoint for MCP clients could not be opened."""
    if settings.mcp.serve is not None and not _has_sdk():
        yield Problem("configuration", "mcp.serve", MISSING_SDK)


def _iterate_service_problems(settings: Settings) -> Iterator[str]:
    """Return why MCP servers cannot start on this machine, as far as nothing has to be started to know it."""
    enabled = {name: server for name, server in settings.mcp.servers.items() if server.enabled}
    if enabled and not _has_sdk():
        yield f"MCP servers ({', '.join(enabled)}): {MISSING_SDK}"
    for name, server in enabled.items():
        if (problem := _find_missing_program(server)) is not None:
            yield f"MCP server {name!r}: {problem}"


def _has_sdk() -> bool:
    return importlib.util.find_spec("mcp") is not None


def _find_missing_program(server: McpServer) -> str | None:
    options: dict[str, Any] = build_options(server)
    if server.command is None:
        return None
    cwd = options.get("cwd")
    return find_start_problem(
        Program(server.command, env=options.get("env", {}), cwd=None if cwd is None else str(cwd))
    )
