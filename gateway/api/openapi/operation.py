"""One operation of the gateway's own API, and the parts that many operations have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gateway.api.openapi.shapes import TEXT, Schema

Scope = Literal["passthrough", "context", "approve", "admin", "metrics"]
Method = Literal["GET", "POST", "PUT", "DELETE"]

JSON: Final = "application/json"
STREAM: Final = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query, or a request header."""

    name: str
    schema: Schema
    description: str
    place: Literal["query", "header"] = "query"


@dataclass(frozen=True, slots=True)
class OperationAnswer:
    """A successful answer, by its content type; without one it has no body."""

    description: str
    content: Mapping[str, Schema | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one page. `scopes`: a key needs one of these; () needs no key.

    `errors` are its own codes, besides the ones that any operation may answer.
    """

    method: Method
    path: str
    name: str
    summary: str
    tag: str
    scopes: tuple[Scope, ...]
    answers: Mapping[int, OperationAnswer]
    parameters: Sequence[Parameter] = ()
    body: str | None = None
    body_required: bool = True
    errors: tuple[str, ...] = ()
    head: bool = False  # HEAD answers the same, without its body


#: The scopes of what a key may see of its own tenant.
VIEWING: Final[tuple[Scope, ...]] = ("context", "approve")
#: Codes of queries, of bodies, of decisions and of answers by a chain.
OF_QUERIES: Final = ("unknown_field", "invalid_field")
OF_BODIES: Final = (
    "invalid_json",
    "invalid_header",
    "missing_field",
    *OF_QUERIES,
    "request_too_large",
    "unsupported_media_type",
)
OF_DECISIONS: Final = (
    *("own_call", "approval_not_found", "approval_expired", "approval_stale", "approved_already", "decision_conflict"),
    "edit_refused",
)
OF_CHATS: Final = (
    *(code for code in OF_BODIES if code != "unknown_field"),
    *("unsupported_parameter", "content_blocked", "upstream_rejected", "upstream_refused", "prompt_not_found"),
    *("idempotency_in_use", "idempotency_mismatch", "model_not_allowed", "upstream_not_allowed"),
    *("agent_iteration_limit", "agent_malformed_tool_call", "invalid_parameters", "run_cancelled", "run_interrupted"),
    *("insufficient_quota", "rate_limit_exceeded"),
    *("workflow_failed", "upstream_limited", "upstream_error", "overloaded", "upstream_unavailable", "circuit_open"),
    *("agent_timeout", "upstream_timeout", "gateway_stopping", *OF_DECISIONS),
)
#: The headers of a request to a chain.
STEERING: Final = (
    Parameter("X-Context-Chain", TEXT, "Name of a chain.", "header"),
    Parameter("X-Context-Prompt", TEXT, "Id of a system prompt.", "header"),
    Parameter("X-Context-Conversation", TEXT, "The client's id of the conversation.", "header"),
    Parameter("X-Context-User", TEXT, "The client's id of the end user, to whom memories belong.", "header"),
    Parameter("X-Context-Tools", TEXT, "Names and globs, comma separated, that narrow the tools.", "header"),
    Parameter(
        "X-Context-Approvals", {"enum": ["hold", "turn", "reject"]}, "How the answer waits for a person.", "header"
    ),
    Parameter("X-Context-Events", {"enum": ["0", "1"]}, "`1`: progress events in the stream.", "header"),
    Parameter("X-Context-Task", TEXT, "The task of a program, in one word; `none`: a user's own request.", "header"),
    Parameter("X-Context-Mode", {"enum": ["context"]}, "On paths without `/context`: `context`.", "header"),
    Parameter("Idempotency-Key", TEXT, "A repeat with the same key joins its run.", "header"),
)


def build_json_answers(description: str, schema: Schema, *, status: int = 200) -> dict[int, OperationAnswer]:
    """Return a successful answer in JSON."""
    return {status: OperationAnswer(description, {JSON: schema})}


def describe_get(
    path: str,
    name: str,
    summary: str,
    tag: str,
    answer: Schema,
    *,
    scopes: tuple[Scope, ...] = VIEWING,
    parameters: Sequence[Parameter] = (),
    errors: tuple[str, ...] = (),
    head: bool = True,
) -> Operation:
    """Return the operation of a page that is read, with an answer in JSON."""
    return Operation(
        method="GET",
        path=path,
        name=name,
        summary=summary,
        tag=tag,
        scopes=scopes,
        parameters=parameters,
        answers=build_json_answers("The answer.", answer),
        errors=(*OF_QUERIES, *errors) if scopes else errors,
        head=head,
    )
