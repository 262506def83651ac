"""A plugin under check: how it is found and built, the rules of its `Config`, and the error of a broken rule.

A check stops at the first broken rule. Its error names the rule, the place in the plugin and the next step. So a test
of a plugin needs no assertion for what every plugin must do.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from gateway.contracts.plugin import Host, Plugin, PluginKind

if TYPE_CHECKING:
    from pydantic import BaseModel


T = TypeVar("T")

_UNKNOWN: Final = "no_such_key"


class ContractError(AssertionError):
    """The error of a plugin that breaks a rule of docs/plugins.md; its text is the rule, the place, the next step."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A plugin under check, with the configuration that its test gives it."""

    kind: PluginKind
    name: str
    plugin: Plugin[Any, Any]
    config: Any

    def build(self, host: Host) -> Any:
        """Return a new object of the plugin."""
        try:
            return self.plugin.build(self.config, host)
        except Exception as error:
            self.fail("is built with a valid config", f"build raised {error!r}", "accept every config that is valid")

    def fail(self, rule: str, found: str, instead: str, *, at: object = None) -> NoReturn:
        """Raise ContractError: the rule, the place, the finding, the next step."""
        __tracebackhide__ = True  # of pytest: the text is complete
        where = _describe_place(self.plugin.build if at is None else at)
        raise ContractError(
            f"{self.kind} {self.name!r} at {where} breaks the rule {rule!r}: {found}. "
            f"To fix it: {instead} (docs/plugins.md)."
        )


def load_subject(
    kind: PluginKind, plugin: str | Plugin[Any, Any], config: Mapping[str, object] | None, folder: Path | None
) -> Subject:
    """Find a plugin as the gateway does, check its `Config`, and read the test's configuration with it."""
    # A test that checks no plugin goes without the reading of configuration.
    from gateway.registry.loader import PluginProblem, find_plugin

    name = plugin if isinstance(plugin, str) else plugin.build.__module__
    try:
        found = find_plugin(kind, plugin, folder=folder) if isinstance(plugin, str) else plugin
    except PluginProblem as problem:
        raise ContractError(f"{kind} {name!r} cannot be used: {problem.message}") from problem
    check_config(kind, name, found)
    try:
        made = found.config.model_validate(dict(config or {}))
    except ValueError as error:
        raise ContractError(f"{kind} {name!r} does not take the config of this test: {error}") from error
    return Subject(kind, name, found, made)


def check_config(kind: PluginKind, name: str, plugin: Plugin[Any, Any]) -> None:
    """Check a `Config`: it forbids unknown keys, is frozen, and has a default and a description for each field.

    Raises ContractError.
    """
    from pydantic import BaseModel  # see `load_subject`

    config, one = plugin.config, Subject(kind, name, plugin, None)
    if not (isinstance(config, type) and issubclass(config, BaseModel)):
        one.fail("Config is a pydantic model", f"it is {config!r}", "derive Config from pydantic.BaseModel")
    for model in _iterate_models(config):
        if model.model_config.get("extra") != "forbid":
            found = f"{model.__name__} ignores unknown keys"
            one.fail("unknown keys are errors", found, 'set model_config = ConfigDict(extra="forbid")', at=model)
        if not model.model_config.get("frozen"):
            found = f"fields of {model.__name__} can be set"
            one.fail("Config is frozen", found, "set model_config = ConfigDict(frozen=True)", at=model)
        for field, facts in model.model_fields.items():
            if facts.is_required():
                one.fail("every field has a default", f"{field!r} has none", "add Field(default=...)", at=model)
            if not (facts.description or "").endswith("."):
                found = f"{field!r} has no description that ends in a full stop"
                one.fail("every field has a description", found, 'add Field(description="... .")', at=model)
    try:
        config.model_validate({_UNKNOWN: 1})
    except ValueError as error:
        if _UNKNOWN in str(error):
            return
    one.fail("unknown keys are errors", f"{_UNKNOWN!r} is accepted", "remove the validator that drops it", at=config)


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run the asynchronous part of a check, in a separate event loop."""
    try:
        running: object = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is not None:
        raise RuntimeError("a check of a plugin has an event loop of its own: call it in a plain `def`, no `async def`")
    return asyncio.run(_await_work(work))


async def _await_work(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


def _iterate_models(config: "type[BaseModel]") -> "list[type[BaseModel]]":
    """Return a model and the sections in it."""
    from pydantic import BaseModel  # see `load_subject`

    found = [config]
    for field in config.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += _iterate_models(field.annotation)
    return found


def _describe_place(at: object) -> str:
    """Return `FILE:LINE, NAME` of a function, a class or an object of one."""
    named = at if inspect.isroutine(at) or inspect.isclass(at) else type(at)
    name = getattr(named, "__qualname__", repr(named))
    try:
        _, line = inspect.getsourcelines(named)
        return f"{inspect.getsourcefile(named)}:{line}, {name}"
    except (OSError, TypeError):
        return name
