"""Tools, their calls and results, and where tools come from."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol, runtime_checkable

from gateway.contracts.exchange import Exchange
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json as Json
from gateway.contracts.templates import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool as the model may see it. `parameters` is a JSON Schema of type object, without `risk_level`.

    `priority`: higher stays longer in a prompt that is too large. `idempotent`: running it twice does no harm.
    `server` identifies the MCP server of a tool as it is configured, and that server's whole definition of the tool; or
    the place where another tool acts, by `place_sha256`. A decision on a call holds for these alone. No secret can be
    read from it.
    """

    name: str
    description: str
    parameters: Json
    category: str = "general"
    priority: int = 0
    untrusted: bool = False
    requires_approval: bool = False
    idempotent: bool = False
    server: str = ""


def place_sha256(*parts: object) -> str:
    """Return what identifies the place where a tool acts (hex), such as its folder. Its parts hold no secret."""
    return sha256(repr([str(part) for part in parts]).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call that the model requests; `arguments` without `risk_level`.

    `harmless`: it runs because it was judged to be harmless, and for no other reason. A source that can enforce this
    does so: the call fails instead of having an effect. `stands` returns whether what cleared the call is unchanged. A
    source calls it before it sends a call again.
    """

    id: str
    tool: str
    arguments: Json
    terminate: bool = False
    harmless: bool = False
    stands: Callable[[], bool] = field(default=lambda: True, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool. A failure is a result, too (`ok=False`): the model reads it and goes on.

    `parts` and `structured` are for MCP clients only: its blocks of content and its structured content, as the protocol
    has them. `content` contains their text for all other clients. `unfit` is the reason why the structured content that
    the tool's definition promises is left out.
    """

    content: str
    ok: bool = True
    parts: Sequence[Json] | None = None
    structured: Any = None
    unfit: str | None = None


class ToolSource(Protocol):
    """A source of tools: a built-in, a plugin, an MCP server. `call` ends its effects when it is cancelled."""

    async def list_tools(self) -> Sequence[ToolSpec]: ...

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        """Return the error of a call that can never succeed, before it needs an approval; None: it may be judged."""
        ...

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult: ...

    async def close(self) -> None:
        """Close the source. Idempotent."""
        ...


@runtime_checkable
class Binder(ToolSource, Protocol):
    """A source with an argument in another language, such as shell, where a workflow's values must stay values."""

    def bind(self, arguments: Json, values: Values) -> Json:
        """Return the arguments of a workflow's step with its references (`gateway.contracts.templates`) replaced.

        Raises ValueError, with the reason, for a reference that stands where no value can.
        """
        ...


@runtime_checkable
class CheckedSource(ToolSource, Protocol):
    """A source whose calls need something of the machine, which may not be there."""

    async def obstacle(self) -> str | None:
        """Return why calls of it fail, or ask, on this machine, with the operator's next step; None: they do not."""
        ...


@dataclass(frozen=True, slots=True)
class Service:
    """A tool service (an MCP server) as the intent layer sees it; `tools` maps tool names to one-line descriptions.

    `changed` are the tools whose definition differs from the accepted one. `known` are the names of tools that were
    accepted once: a service that has not run yet has no others.
    """

    name: str
    description: str
    trigger_keywords: tuple[str, ...]
    tools: Mapping[str, str]
    running: bool
    changed: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()


@runtime_checkable
class ServiceSource(ToolSource, Protocol):
    """A source that is a service: its tools come and go, and stand in a prompt only where its user wants them.

    A tool `t` of the service `s` is `s.t` to the gate, to the operator and in `call`.
    """

    def get_service(self) -> Service:
        """Return the service as it is now."""
        ...

    def find_spec(self, tool: str) -> ToolSpec | None:
        """Return the definition of a tool of a running service, by the service's own name for it."""
        ...


@runtime_checkable
class Examiner(ToolSource, Protocol):
    """A source whose engine can judge a call: it parses the call as it would run it, and runs nothing of it."""

    async def examine(self, call: ToolCall, exchange: Exchange) -> Verdict | None:
        """Return the engine's doubt about a call that its assessor judged harmless; None: the engine agrees.

        An exception, or more than a few seconds, counts as a doubt.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The text that a call would change, as it is now (None: there is none) and as it is after the call.

    `label` names the text for a person, such as the path of a file.
    """

    before: str | None
    after: str
    label: str


@dataclass(frozen=True, slots=True)
class NoPreview:
    """The reason, a sentence for a person, why a call has no preview."""

    reason: str


@runtime_checkable
class Previewer(ToolSource, Protocol):
    """A source that can show what a call would change, before a person decides on it."""

    async def preview(self, call: ToolCall) -> Preview | NoPreview:
        """Return what the call would change, and change nothing. Read no more than the call itself may read."""
        ...


#: OpenAI-compatible models take names of this many letters, digits, `_` and `-`.
MODEL_NAME_LIMIT = 64


_PLAIN = re.compile(f"[A-Za-z0-9_-]{{1,{MODEL_NAME_LIMIT}}}")


_FOREIGN = re.compile("[^A-Za-z0-9_-]")


def encode_model_name(name: str) -> str:
    """Return `name` as models write it: `a.b` is `a__b`; other names get 8 hex digits to stay unique."""
    plain = name.replace(".", "__")
    if _PLAIN.fullmatch(plain):
        return plain
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return _FOREIGN.sub("_", plain)[: MODEL_NAME_LIMIT - 9] + "_" + digest


def is_of_service(name: str, service: str) -> bool:
    """Return whether a tool of this name, inside or towards models, would belong to the service."""
    head = _FOREIGN.sub("_", service.replace(".", "__")) + "__"
    return name.startswith((f"{service}.", head[: MODEL_NAME_LIMIT - 9]))


#: Every request of a tool carries it, and the gateway's own pages refuse it: a model must not decide on its own calls.
TOOL_HEADER = "X-Gateway-Tool"
