"""The nouns of the context lane. No I/O, no pydantic."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import has_magic
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from gateway.contracts.caller import Caller as Caller  # for plugins, too
from gateway.contracts.records import replace
from gateway.contracts.storage.journal import StoredRun, StoredStep
from gateway.contracts.storage.store import Json as Json

if TYPE_CHECKING:
    from gateway.contracts.tracing.context import RunTrace, ToolTrace

IntentKind = Literal["normal", "memory", "hitl", "mcp"]
#: How a cache took part in an answer: all of it is from there, it was looked for, or it is none of the cache's.
CacheResult: TypeAlias = Literal["hit", "miss", "bypass"]


# One request.


@dataclass(frozen=True, slots=True)
class MemoryIntent:
    """A request about memories; `about` is its subject as its user wrote it.

    A `forget` without a subject means all memories if `everything`, else nothing that was named. `every`: it means all
    memories that match, not only the one that is most like the subject.
    """

    action: Literal["remember", "recall", "forget"]
    about: str = ""
    everything: bool = False
    every: bool = False


@dataclass(frozen=True, slots=True)
class Intent:
    """The intent that the intent layer recognised: `rule` names the rule that decided, `span` its place in the text.

    The span counts characters. `service` and `tools` are set for `mcp`: the tools (inside names) whose one-line
    descriptions the prompt gets. `reply` is a friendly text for the model where the requested thing is not available.
    `memory` is set for `memory`: the memory stage acts on it, and does not read the message again.
    """

    kind: IntentKind
    rule: str
    span: tuple[int, int] | None = None
    service: str | None = None
    tools: tuple[str, ...] = ()
    reply: str | None = None
    memory: MemoryIntent | None = None


@dataclass(frozen=True, slots=True)
class CallProgress:
    """A report about the progress of a tool call. `progress` counts towards `total`, as its sender counts."""

    message: str | None = None
    progress: float | None = None
    total: float | None = None


class CallWatcher(Protocol):
    """The request that waits for a call of an MCP client (`Job.call`), in the process that runs it."""

    def on_step_begun(self, step: str, *, number: int, total: int) -> None:
        """Receive the name of a workflow's step that begins now; `number` steps of `total` are over."""
        ...

    def report_progress(self, progress: CallProgress) -> None:
        """Receive a report about the progress of the call."""
        ...

    def report_result(self, step: StoredStep) -> None:
        """Receive a tool call once it has its result, before the run ends."""
        ...


@dataclass(frozen=True, slots=True)
class Resume:
    """A stored run that continues; `messages` come from the client's request that continues it, if any.

    `decided` are the approvals that this request decides on. `narrows` is how it narrows the run from there on.
    """

    run: StoredRun
    messages: Sequence[Json] | None = None
    decided: tuple[str, ...] = ()
    narrows: Json | None = None


# The records of a request have no slots: see gateway.contracts.records.


@dataclass(frozen=True, kw_only=True)
class ToolSteering:
    """The tools of a request as its client steers them: those that the model may call, and who approves the calls."""

    only_tools: tuple[str, ...] = ()  # names or globs that narrow the tools of this request; (): no narrowing
    within: tuple[tuple[str, ...], ...] = ()  # further ones, each of which narrows what is left
    no_tools: bool = False  # the model may call none of ours
    must_call: bool = False  # the client wants a call of a tool, and the body does not say so
    services: tuple[str, ...] = ()  # services that the client named: all their tools are offered
    ask_first: tuple[str, ...] = ()  # names or globs of tools whose calls a person approves in any case
    max_tool_calls: int | None = None  # lowers the loop's own limit
    #: Schemas of tools of the client's, by name, for whose calls its API has nothing but these arguments.
    exact_tools: Json = field(default_factory=dict)
    approvals: Literal["hold", "turn", "reject"] = "turn"

    def allows(self, tool: str) -> bool:
        """Return whether the model may call the tool of this inside name, as far as the request says."""
        if self.no_tools or (self.only_tools and not fits_any(tool, self.only_tools)):
            return False
        return all(fits_any(tool, patterns) for patterns in self.within)

    def asks_first(self, tool: str) -> bool:
        """Return whether the client wants a person to approve each call of the tool of this inside name."""
        return bool(self.ask_first) and fits_any(tool, self.ask_first)


@dataclass(frozen=True, kw_only=True)
class Job:
    """The work of a request that is no chat: a task of a program, a workflow, or one tool call of an MCP client."""

    task: str | None = None  # what a program wants for itself: no stage sees such a request
    workflow: Json | None = None  # runs instead of a loop: its `definition` as it is, its `parameters`, checked
    #: What an MCP client calls: the inside name of a `tool`, and its `arguments`. It runs instead of a loop, or it is
    #: the `workflow` under its name as a tool.
    call: Json | None = None
    watcher: CallWatcher | None = field(default=None, compare=False, repr=False)  # of `call`

    @property
    def is_one_call(self) -> bool:
        """Return whether one tool call is the whole run."""
        return self.call is not None and self.workflow is None


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The way of the answer to its client, and the names under which later requests find it."""

    streams: bool = True  # the client gets the answer as it comes, and not at its end
    events: bool = False  # the client wants progress events
    shows_calls: bool = False  # calls of our tools, and questions about them, are events, and no text of the answer
    asks_in_text: bool = False  # the questions are text nevertheless: the client's API has nothing else for them
    background: bool = False  # no client waits: the run is on record before the model is called
    brings: str = ""  # what the answer begins with: what came of an earlier question of the conversation
    known_as: tuple[str, ...] = ()  # names under which later requests refer to the answer; its taint is stored for each
    answer_id: str = ""  # the request that the answer is the response to, where later requests bring it as an id

    @property
    def asks_with_events(self) -> bool:
        """Return whether a question about a call is an event, and no text of the answer."""
        return self.shows_calls and not self.asks_in_text


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The client's request beside its body: its identity for repeats, its header lines, and ids of its messages."""

    fingerprint: str = ""  # equal in two requests that are the same
    idempotency_key: str | None = None  # the client's own word for the same
    takes_key_of: str | None = None  # the run that had the key and is over: the same request begins anew
    client: Json | None = None  # a page shows the run again from it after a crash; no other code reads it
    thoughts: tuple[str, ...] = ()  # of models, that the client brings and the body may have in another form, or not
    answer_ids: tuple[str, ...] = ()  # those of the assistant messages of the body, in their order; "" for none
    #: Header lines of the client's that go on to the model, and those of its own credential, which go on where the
    #: upstream has none. Each ends with CRLF.
    header: bytes = field(default=b"", repr=False)
    credential: bytes = field(default=b"", repr=False)
    credential_header: bytes = b"authorization"  # where its client puts a credential, in lower case


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The run that serves a request: the stored run that it continues, its time, its taint and its traces."""

    resume: Resume | None = None
    again: int = 0  # so often this call of the model was made before and failed, in a run that goes on
    budget_s: float = 300.0
    tainted: bool = False  # third parties may have written a part of the conversation
    trace: "RunTrace | None" = field(default=None, compare=False, repr=False)  # of the run, where there are traces
    tool_trace: "ToolTrace | None" = field(default=None, compare=False, repr=False)  # of the call that runs
    remarks: tuple[str, ...] = ()  # of stages, about a request that is only explained (`Exchange.dry`)


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One context request on its way to the model; never mutated (`gateway.contracts.records.replace`).

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
    intent: Intent | None = None
    notes: tuple[str, ...] = ()
    dry: bool = False  # only to be explained: nothing may be called, stored or forgotten
    # Most requests share the records that have nothing of their own.
    steering: ToolSteering = ToolSteering()
    job: Job = Job()
    delivery: Delivery = Delivery()
    origin: Origin = Origin()
    execution: Execution = Execution()

    def with_remarks(self, *remarks: str) -> "Exchange":
        """Return the exchange with further remarks of a stage about a request that is only explained (`dry`)."""
        return replace(self, execution=replace(self.execution, remarks=(*self.execution.remarks, *remarks)))


def fits_any(tool: str, patterns: Sequence[str]) -> bool:
    """Return whether one of these names and globs means the tool. A name is compared first: there may be a thousand."""
    return tool in patterns or any(fnmatchcase(tool, pattern) for pattern in patterns if has_magic(pattern))


#: Something of an answer: a piece of its text, which a chunk with nothing but a text comes as, or a whole
#: `chat.completion.chunk` object, whatever API the client speaks (gateway/dialects/dialect.py). The object may carry
#: `"context": {"type": ...}` (an event for the client, docs/wire).
Chunk: TypeAlias = str | Json
#: The length of the longest answer, and the memory of a parsed chunk of one token, measured: 892 bytes.
ANSWER_CHARS, PARSED_BYTES = 16 << 20, 900
#: Waits until the client may get more: it does not keep up, or is gone.
Pause: TypeAlias = Callable[[], Awaitable[None]]
#: Accepts the next chunk of a reply. If it returns a `Pause`, await it before you emit again. An exception ends the
#: reply.
Emit: TypeAlias = Callable[[Chunk], Pause | None]


class AnswerEnded(Exception):  # noqa: N818  (an event: nothing failed)
    """The exception with which a stage ends an answer that comes through it. What is below it has done its work."""


class AnsweredBy(Protocol):
    """The upstream and its endpoint that answer a model call, and the model as it is named there.

    They change if another one takes the call over, which happens only while the client has nothing of the answer.
    `provider` names the upstream's operator as spans do. `host` and `port` are its address. `streams`: the request
    wants a stream.
    """

    @property
    def upstream(self) -> str: ...
    @property
    def endpoint(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def streams(self) -> bool: ...


async def release_nothing() -> None:
    """Do nothing: no call of a model stands behind the answer."""


@dataclass(frozen=True)  # without slots: see gateway.contracts.records
class Reply:
    """The answer as it arrives: `stream(emit)` emits it and returns at its end; it is called once at most.

    A stage that changes an answer passes `stream` its own `emit`. That returns what the stage's `emit` returns. The
    final owner of a reply must await `release()` in a `finally`. It is idempotent.
    """

    stream: Callable[[Emit], Awaitable[None]]
    release: Callable[[], Awaitable[None]] = release_nothing
    intent: Intent | None = None  # what was recognised, for the answer's header
    cache: CacheResult | None = None  # for the answer's header; None: no cache had a part in it
    by: AnsweredBy | None = None  # of the answer of one model call; None: of a whole run, or made without a model


Handler: TypeAlias = Callable[[Exchange], Awaitable[Reply]]


class Stage(Protocol):
    """One layer of the onion. Position decides cadence: above `agent_loop` once a request, below it once a call."""

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply: ...


# Tools.
