"""The nouns of the context lane and its extension points. No I/O, no pydantic; a plugin needs nothing else of ours
but `gateway.wire` and `gateway.errors`.

A plugin is one file that exports `PLUGIN = Plugin(Config, build)`: `plugins/stages/NAME.py` is `use: NAME` in a chain,
`plugins/tools/NAME.py` a tool, `plugins/assessors/NAME.py` an assessor, `plugins/stores/NAME.py` a store.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from gateway.contracts.caller import Caller as Caller  # for plugins, too
from gateway.contracts.journal import StoredRun
from gateway.contracts.store import Json as Json
from gateway.contracts.store import Store

IntentKind = Literal["normal", "memory", "hitl", "mcp"]
Decision = Literal["auto", "confirm", "deny", "error"]
Basis = Literal["operator", "llm", "whitelist", "default", "invalid", "malformed", "duplicate", "unknown_tool"]


# One request.


@dataclass(frozen=True, slots=True)
class Intent:
    """What the intent layer recognised: `rule` names what decided, `span` is where in the text (characters).

    `service` and `tools` are set for `mcp`: the tools (inside names) whose one-line descriptions the prompt gets.
    `reply` is a friendly text for the model where what was asked for is not available.
    """

    kind: IntentKind
    rule: str
    span: tuple[int, int] | None = None
    service: str | None = None
    tools: tuple[str, ...] = ()
    reply: str | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """A run on record that goes on; `messages` are what its client sent with the request in which it does, if any."""

    run: StoredRun
    messages: Sequence[Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One context request on its way to the model; never mutated (`dataclasses.replace`).

    `body` is the chat completion request as the client sent it, or as a stage changed it. `notes` are texts for this
    request alone, which the prompt enhancer renders behind everything that can be cached.
    """

    id: str
    body: Json
    caller: Caller
    chain: str
    prompt: str | None = None  # id of the base prompt; None: no base prompt
    conversation: str | None = None
    user: str | None = None  # the end user, as the client names them; within the caller's tenant
    only_tools: tuple[str, ...] = ()  # names or globs that narrow the tools of this request; (): no narrowing
    approvals: Literal["hold", "turn", "reject"] = "turn"
    #: What makes two requests the same, and the client's own word for it; for who repeats the request.
    fingerprint: str = ""
    idempotency_key: str | None = None
    resume: Resume | None = None
    brings: str = ""  # what the answer begins with: what came of an earlier question of the conversation
    events: bool = False  # progress events were asked for
    dry: bool = False  # only to be explained: nothing may be called, stored or forgotten
    budget_s: float = 300.0
    workflow: Json | None = None  # runs instead of a loop: its `definition` as it is, its `parameters`, checked
    task: str | None = None  # what a program wants for itself: no stage sees such a request
    intent: Intent | None = None
    notes: tuple[str, ...] = ()
    #: Header lines of the client's that go on to the model, and those of its own credential, which go on where the
    #: upstream has none. Each ends with CRLF.
    header: bytes = field(default=b"", repr=False)
    credential: bytes = field(default=b"", repr=False)
    credential_header: bytes = b"authorization"  # where its client puts a credential, in lower case


#: Something of an answer: a piece of its text, which a chunk with nothing but a text comes as, or a whole
#: `chat.completion.chunk` object, which may carry `"context": {"type": ...}` (an event for the client, docs/wire).
Chunk: TypeAlias = str | Json
#: Waits until more may be told: a client does not keep up, or is gone.
Pause: TypeAlias = Callable[[], Awaitable[None]]
#: Takes the next of an answer; whoever tells it awaits the pause that it returns, if any. What it raises ends the
#: answer.
Tell: TypeAlias = Callable[[Chunk], Pause | None]


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer as it arrives: `stream(tell)` tells it and returns at its end; it is called once at most.

    A stage that changes an answer hands `stream` a `tell` of its own, which returns what the one it was given returns.
    Whoever ends up with a reply must await `release()` in a `finally`. It is idempotent.
    """

    stream: Callable[[Tell], Awaitable[None]]
    release: Callable[[], Awaitable[None]]
    intent: Intent | None = None  # what was recognised, for the answer's header


Handler: TypeAlias = Callable[[Exchange], Awaitable[Reply]]


class Stage(Protocol):
    """One layer of the onion. Position decides cadence: above `agent_loop` once a request, below it once a call."""

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply: ...


# Tools.


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool as the model may see it. `parameters` is a JSON Schema of type object, without `risk_level`.

    `priority`: higher stays longer in a prompt that is too large. `idempotent`: running it twice does no harm.
    """

    name: str
    description: str
    parameters: Json
    category: str = "general"
    priority: int = 0
    untrusted: bool = False
    requires_approval: bool = False
    idempotent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call that the model asks for; `arguments` without `risk_level`.

    `harmless`: it runs because it was judged to be harmless, and for no other reason. A source that can hold the call
    to that does: it fails instead of having an effect.
    """

    id: str
    tool: str
    arguments: Json
    terminate: bool = False
    harmless: bool = False


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool said. A failure is a result, too (`ok=False`): the model reads it and goes on."""

    content: str
    ok: bool = True


class ToolSource(Protocol):
    """Where tools come from: a built-in, a plugin, an MCP server. `call` ends its effects when it is cancelled."""

    async def list_tools(self) -> Sequence[ToolSpec]: ...

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        """What is wrong with a call that nobody must even be asked about; None: it may be judged."""
        ...

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult: ...

    async def close(self) -> None:
        """Idempotent."""
        ...


@runtime_checkable
class Binder(ToolSource, Protocol):
    """A source with an argument in a language of its own, in which the values of a workflow must stay values."""

    def bound(self, arguments: Json, values: Mapping[str, Mapping[str, object]]) -> Json:
        """Returns the arguments of a workflow's step with its references (`gateway.workflows.templates`) replaced.

        Raises ValueError, with the reason, for a reference that stands where no value can.
        """
        ...


@runtime_checkable
class CheckedSource(ToolSource, Protocol):
    """A source whose calls need something of the machine, which may not be there."""

    async def obstacle(self) -> str | None:
        """Returns why every call of it fails on this machine, with the operator's next step; None: calls can run."""
        ...


@dataclass(frozen=True, slots=True)
class Service:
    """A tool service (an MCP server) as the intent layer sees it; `tools` maps tool names to one-line descriptions.

    `changed` are the tools that are not what they were when they were accepted.
    """

    name: str
    description: str
    trigger_keywords: tuple[str, ...]
    tools: Mapping[str, str]
    running: bool
    changed: frozenset[str] = frozenset()


@runtime_checkable
class ServiceSource(ToolSource, Protocol):
    """A source that is a service: its tools come and go, and stand in a prompt only where its user asks for them.

    A tool `t` of the service `s` is `s.t` to the gate, to the operator and in `call`.
    """

    def service(self) -> Service:
        """As it is now."""
        ...

    def spec(self, tool: str) -> ToolSpec | None:
        """The definition of a tool of a running service, by the service's own name for it."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to happen with a call, on which basis, by which rule; `reason` is one sentence for a person."""

    decision: Decision
    basis: Basis
    rule: str
    reason: str = ""


@runtime_checkable
class Examiner(ToolSource, Protocol):
    """A source whose engine can judge a call: it reads the call as it would run it, and runs nothing of it."""

    async def examine(self, call: ToolCall, exchange: Exchange) -> Verdict | None:
        """Returns the engine's doubt about a call that its assessor holds harmless; None: the engine agrees.

        An exception, or more than a few seconds, counts as a doubt.
        """
        ...


class RiskAssessor(Protocol):
    """Judges the arguments of one tool where neither the operator nor the model has decided (requirement risk-gate).

    Returns auto (basis whitelist) for what is known to be harmless, confirm (basis default) for everything else, and
    never raises for any JSON object; one that does raise counts as confirm.
    """

    def assess(self, arguments: Json) -> Verdict: ...


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
    """What runs agent loops."""

    def stage(self, limits: LoopLimits) -> Stage: ...


class Tools(Protocol):
    """The tools of the running configuration."""

    def offered(self, exchange: Exchange) -> Sequence[ToolSpec]:
        """Those that this request may use, built-in and of plugins, without those of services; in a fixed order."""
        ...

    def services(self) -> Sequence[Service]: ...

    @property
    def version(self) -> str:
        """Changes whenever any definition does."""
        ...


class Prompts(Protocol):
    """Base prompts: the configured ones, which are everybody's, and the stored ones of each tenant."""

    async def text(self, prompt_id: str, *, tenant: str) -> str | None: ...

    @property
    def version(self) -> int:
        """Changes whenever any stored prompt does."""
        ...


class Counters(Protocol):
    """Counts of the context lane (docs/operations.md names them)."""

    def count(self, name: str, by: int = 1, /, **labels: str) -> None:
        """Adds to the counter `gateway_<name>_total`."""
        ...

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Adds a value to the histogram `gateway_<name>`."""
        ...


class Clock(Protocol):
    def monotonic(self) -> float: ...

    def time(self) -> float:
        """Unix time in seconds."""
        ...


class Host(Protocol):
    """What plugins are built with."""

    @property
    def tools(self) -> Tools: ...

    @property
    def prompts(self) -> Prompts: ...

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


@dataclass(frozen=True, slots=True)
class Plugin(Generic[ConfigT, BuiltT]):
    """What a plugin file exports as PLUGIN: the pydantic model of its `with:`, and what makes one."""

    config: type[ConfigT]
    build: Callable[[ConfigT, Host], BuiltT]


@dataclass(frozen=True, slots=True)
class EnhancedPrompt:
    """A system prompt ready to send: the part that can be cached, and for how many seconds it still holds."""

    text: str
    max_age_s: float
    omitted: tuple[str, ...] = field(default=())  # tools that did not fit


@runtime_checkable
class Enhancer(Protocol):
    """A stage that can show what it would put in front of every request (GET /v1/system-prompts/{id}/enhanced)."""

    async def enhanced(self, prompt_id: str, *, tenant: str) -> EnhancedPrompt | None:
        """None: there is no such prompt."""
        ...
