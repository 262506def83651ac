"""The exports of a plugin, and the host that it is built with.

A plugin is a file or a folder that exports `PLUGIN = Plugin(Config, build)`: `plugins/stages/NAME.py` is `use: NAME` in
a chain, `plugins/tools/NAME.py` a tool, `plugins/assessors/NAME.py` an assessor, `plugins/stores/NAME.py` a store.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from gateway.contracts.exchange import Exchange, Stage
from gateway.contracts.risk import RiskAssessor
from gateway.contracts.storage.store import Store, StoreAddress
from gateway.contracts.tools import Service, ToolSpec

#: The kinds of plugins, by the names of their folders.
PluginKind: TypeAlias = Literal["stages", "tools", "assessors", "stores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """The settings of one agent loop; times are seconds, `result_chars` characters."""

    max_tool_calls: int = 10
    timeout_s: float = 300.0
    max_malformed: int = 3
    tool_format: Literal["json", "native"] = "json"
    result_role: Literal["tool", "user"] = "tool"
    result_chars: int = 32768


class Runs(Protocol):
    """The part of the gateway that runs agent loops."""

    def build_stage(self, limits: LoopLimits) -> Stage: ...


class ToolCatalog(Protocol):
    """The tools of the running configuration."""

    def get_offered(self, exchange: Exchange) -> Sequence[ToolSpec]:
        """Return the tools that this request may use: built-in tools, tools of plugins, and of services that it names.

        Their order is fixed.
        """
        ...

    def list_services(self) -> Sequence[Service]: ...

    @property
    def version(self) -> str:
        """Return a text that changes whenever any definition does."""
        ...


class PromptCatalog(Protocol):
    """Base prompts: the configured ones, which every tenant has, and the stored ones of each tenant."""

    async def read_text(self, prompt_id: str, *, tenant: str) -> str | None: ...

    @property
    def version(self) -> int:
        """Return a number that changes whenever any stored prompt does."""
        ...


class Counters(Protocol):
    """Counts of the context lane (docs/operations.md names them)."""

    def count(self, name: str, by: float = 1, /, **labels: str) -> None:
        """Add to the counter `gateway_<name>_total`."""
        ...

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add a value to the histogram `gateway_<name>`."""
        ...

    def observe_all(self, name: str, values: Sequence[float], /, **labels: str) -> None:
        """Add several values to the histogram, at less cost than one by one."""
        ...


class Clock(Protocol):
    def monotonic(self) -> float: ...

    def time(self) -> float:
        """Return Unix time in seconds."""
        ...


class Host(Protocol):
    """The parts of the gateway that plugins are built with."""

    @property
    def tools(self) -> ToolCatalog: ...

    @property
    def prompts(self) -> PromptCatalog: ...

    @property
    def runs(self) -> Runs: ...

    @property
    def store(self) -> Store: ...

    @property
    def counters(self) -> Counters: ...

    @property
    def clock(self) -> Clock: ...


ConfigT = TypeVar("ConfigT")


BuiltT = TypeVar("BuiltT", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """A file or folder that a tool is given. `key`: the setting that names it, such as `("roots", 0)`.

    `gateway check-config` compares it with the configuration, the store, secrets and plugins.
    """

    key: tuple[str | int, ...]
    place: Path
    kind: Literal["folder", "database", "either"]
    writable: bool


#: How a stage calls tools or lets a model call them: as JSON in its text, or by the API's own `tools`.
ToolFormat: TypeAlias = Literal["json", "native"]


def _list_no_options(_config: object) -> Mapping[str, object]:
    return {}


def _reach_nothing(_config: object) -> Sequence[Reach]:
    return ()


def _choose_no_format(_config: object) -> ToolFormat | None:
    return None


@dataclass(frozen=True, slots=True)
class Plugin(Generic[ConfigT, BuiltT]):
    """The export PLUGIN of a plugin: the pydantic model of its `with:`, the function that builds it, declarations.

    The gateway knows no plugin by its name. Each function takes the plugin's settings.
    """

    config: type[ConfigT]
    build: Callable[[ConfigT, Host], BuiltT]
    _: KW_ONLY

    #: Of a tool: the assessor that judges its calls, unless `risk.assessors` names another: its name, or itself.
    assessor: "str | Plugin[Any, RiskAssessor] | None" = None
    #: Of a tool: the settings of that assessor.
    assessor_options: Callable[[ConfigT], Mapping[str, object]] = _list_no_options
    #: Of a tool: further settings of that assessor where the tool examines the calls that the assessor lets run.
    examined_options: Callable[[ConfigT], Mapping[str, object]] = _list_no_options
    #: Of a tool: the files and folders that it is given.
    reaches: Callable[[ConfigT], Sequence[Reach]] = _reach_nothing
    #: Of a tool: settings with which it can be built on every machine, to list its tools.
    anywhere: Mapping[str, object] = field(default_factory=dict)
    #: Of an assessor: arguments that only the calls which it judges have.
    judges: Sequence[str] = ()
    #: Of a stage: whether it lets the model call tools; a stored run goes on from there.
    runs_tools: bool = False
    #: Of a stage: whether it only adds to requests, so that a message which comes with a decision may pass it by. Above
    #: a stage that runs tools, any other one, which may refuse or change a message, lets none come so.
    only_adds: bool = False
    #: Of a stage that looks into answers: whether it also gets a stored run that goes on, whose answer is new. The
    #: exchange then has `resume`, and its body is as the stage has changed it before.
    guards_answers: bool = False
    #: Of a stage: whether it must be the last of its chain, so that it sees what the model gets.
    last: bool = False
    #: Of a stage: how the tools that it runs, or offers in the prompt, are called; None: it offers none. Where the two
    #: do not fit, its setting `tool_format` or `tools` is reported.
    tool_format: Callable[[ConfigT], ToolFormat | None] = _choose_no_format
    #: Of a store, whose name is the scheme of its URLs: what a URL means, relative to the folder of the configuration.
    address: Callable[[str, Path], StoreAddress] | None = None


@dataclass(frozen=True, slots=True)
class EnhancedPrompt:
    """A system prompt ready to send: the part that can be cached, and for how many seconds it is still valid.

    `tokens` is an estimate of its size from the text alone; None: there is none.
    """

    text: str
    max_age_s: float
    omitted: tuple[str, ...] = field(default=())  # tools that did not fit
    tokens: int | None = None


@runtime_checkable
class Enhancer(Protocol):
    """A stage that can show what it would put in front of every request (GET /v1/system-prompts/{id}/enhanced)."""

    async def enhance_prompt(self, prompt_id: str, *, tenant: str) -> EnhancedPrompt | None:
        """Return the enhanced prompt; None: no prompt has this id."""
        ...
