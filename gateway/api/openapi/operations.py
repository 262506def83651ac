"""The operations of the gateway's own API, one line each: the table that its description is generated from."""

from collections.abc import Sequence
from typing import Final

from gateway.api.admin.csv_export import FORMATS
from gateway.api.approvals import GROUPINGS, ORDERS, QUERY_CHARS
from gateway.api.approvals import STATES as APPROVAL_STATES
from gateway.api.openapi.feature_description import collect_descriptions
from gateway.api.openapi.operation import (
    JSON,
    OF_BODIES,
    OF_CHATS,
    OF_DECISIONS,
    OF_QUERIES,
    STEERING,
    STREAM,
    VIEWING,
    Method,
    Operation,
    OperationAnswer,
    Parameter,
    Scope,
    build_json_answers,
)
from gateway.api.openapi.operation import (
    describe_get as _get,
)
from gateway.api.openapi.responses import OF_RESPONSES, RESPONSE_OPERATIONS
from gateway.api.openapi.shapes import (
    NUMBER,
    OBJECT,
    TEXT,
    TRUTH,
    WHOLE,
    Schema,
    build_list_schema,
    build_page_schema,
    build_reference,
    with_fields,
)
from gateway.api.ops_pages import EXPOSITION_TYPE, OPENMETRICS_TYPE
from gateway.api.runs import KINDS
from gateway.api.runs import STATES as RUN_STATES
from gateway.contracts.api_bounds import LIMIT, LIMIT_MOST
from gateway.dialects.dialect import Dialect
from gateway.dialects.loader import load_dialect
from gateway.dialects.registry import STATELESS, build_paths


def _build_limit_parameter(*, default: int) -> Parameter:
    schema = {"type": "integer", "minimum": 1, "maximum": LIMIT_MOST, "default": default}
    return Parameter("limit", schema, "Entries of a page, at most.")


#: Codes that any operation may answer: of the head, the name, the key, the store.
COMMON: Final = (
    *("bad_framing", "host_not_allowed", "origin_not_allowed", "method_not_allowed", "request_timeout"),
    *("target_too_long", "expectation_failed", "headers_too_large", "internal_error", "unsupported_transfer_coding"),
    *("overloaded", "gateway_starting", "http_version", "store_full", "store_uncertain"),
)
#: Codes that any operation for a key may answer.
OF_KEYS: Final = (
    *("invalid_header", "missing_api_key", "invalid_api_key", "key_expired", "network_not_allowed", "scope_missing"),
)
#: Codes of no operation: paths and methods that are none, requests that pass through, and the pages of links.
OF_NONE: Final = (
    *("unknown_route", "unsupported_endpoint", "tool_not_found", "invalid_token", "issuer_unavailable"),
    *("link_not_valid", "link_used"),
)

_CONVERSATION: Final = Parameter("conversation", TEXT, "Only those of this conversation (`X-Context-Conversation`).")
#: The ids of operations, by the order of `build_paths`.
_WAYS: Final = ("", "WithoutVersion", "ByHeader", "ByHeaderWithoutVersion")
_BEHIND: Final = Parameter("after", TEXT, "`next` of the page before.")
_LIMIT: Final = _build_limit_parameter(default=LIMIT)
#: Of lists that came whole before they came in pages.
_MANY: Final = _build_limit_parameter(default=LIMIT_MOST)


def _list_chat_operations(dialect: Dialect) -> list[Operation]:
    """Return one operation for each path of a dialect."""
    told = dialect.description
    answer = OperationAnswer(told.stream, {JSON: build_reference(told.answer), STREAM: None})
    return [
        Operation(
            method="POST", path=path, name=told.operation + suffix, summary="Answer a chat through a chain", tag="Chat",
            scopes=("context",), parameters=STEERING, body=told.request, answers={200: answer}, errors=OF_CHATS,
        )
        for path, suffix in zip(build_paths(dialect.endpoint), _WAYS, strict=True)
    ]  # fmt: skip


def _build_model_list_operation(path: str, name: str) -> Operation:
    errors = (
        *("upstream_error", "upstream_timeout", "upstream_unavailable", "upstream_limited", "upstream_refused"),
        *("circuit_open", "overloaded", "upstream_not_allowed"),
    )
    return Operation(
        method="GET", path=path, name=name, summary="List the models", tag="Chat", scopes=("context",),
        answers=build_json_answers(
            "The list of one upstream, or of all with the aliases. With `anthropic-version`, in Anthropic's form.",
            build_reference("Models"),
        ),
        errors=errors,
    )  # fmt: skip


def _post(
    path: str, name: str, summary: str, tag: str, answer: Schema, *, scopes: tuple[Scope, ...],
    errors: tuple[str, ...] = (), body: str | None = None, method: Method = "POST", status: int = 200,
    required: bool = True,
) -> Operation:  # fmt: skip
    return Operation(
        method=method, path=path, name=name, summary=summary, tag=tag, scopes=scopes, body=body, body_required=required,
        answers=build_json_answers("The answer.", answer, status=status),
        errors=(*(OF_BODIES if body else OF_QUERIES), *errors),
    )  # fmt: skip


def _delete(
    path: str, name: str, summary: str, tag: str, *, scopes: tuple[Scope, ...] = ("approve",), errors: tuple[str, ...]
) -> Operation:
    return Operation(
        method="DELETE", path=path, name=name, summary=summary, tag=tag, scopes=scopes,
        answers={204: OperationAnswer("Deleted.", {})}, errors=(*OF_QUERIES, *errors),
    )  # fmt: skip


def _build_service_operation(
    verb: str, summary: str, *, errors: tuple[str, ...] = (), body: str | None = None
) -> Operation:
    return _post(
        f"/mcp/services/{{name}}/{verb}", f"{verb}Service", summary, "Services", build_reference("Service"),
        scopes=("admin",),
        errors=("service_not_found", *errors), body=body, required=False,
    )  # fmt: skip


_EVENTS = Operation(
    method="GET", path="/context/runs/{id}/events", name="followRun", tag="Runs", scopes=VIEWING,
    summary="Follow the events of a run until it ends",
    parameters=(Parameter("after", WHOLE, "Only events behind this one; `Last-Event-ID` overrides it."),),
    answers={200: OperationAnswer("Server-sent events.", {STREAM: None})},
    errors=(*OF_QUERIES, "run_not_found"),
)  # fmt: skip
_SOCKET = Operation(
    method="GET", path="/context/ws", name="openSocket", tag="Approvals", scopes=VIEWING,
    summary="Open a WebSocket that sends events and takes decisions",
    parameters=(Parameter("after", WHOLE, "Begin with the events behind this one."),),
    answers={101: OperationAnswer("The WebSocket begins.", {})},
    errors=OF_QUERIES,
)  # fmt: skip
_METRICS = Operation(
    method="GET", path="/metrics", name="getMetrics", tag="Operating", scopes=("metrics", "admin"), head=True,
    summary="Get the metrics of all workers; `metrics.public` opens them to every client",
    answers={
        200: OperationAnswer(
            "Prometheus text, or OpenMetrics where `Accept` names it.",
            {EXPOSITION_TYPE.partition(";")[0]: None, OPENMETRICS_TYPE: None},
        )
    },
)  # fmt: skip
_READY = Operation(
    method="GET", path="/health/ready", name="getReadiness", tag="Operating", scopes=(), head=True,
    summary="Check whether the gateway takes requests",
    answers=build_json_answers("Ready.", build_reference("Status"))
    | build_json_answers("Draining, or without its store.", build_reference("Status"), status=503),
)  # fmt: skip
_RUN_WORKFLOW = Operation(
    method="POST", path="/workflows/{name}/runs", name="runWorkflow", tag="Workflows", scopes=("context",),
    summary="Run a workflow", parameters=(
        Parameter("Prefer", {"const": "respond-async"}, "Answer at once, with 202.", "header"),
        *(one for one in STEERING if one.name.rpartition("-")[2] in ("Chain", "Conversation", "Tools", "Key")),
    ),
    body="RunBody",
    answers=build_json_answers("The run, which has ended.", build_reference("WholeRun"))
    | build_json_answers("The run, which goes on or waits for a person.", build_reference("WholeRun"), status=202),
    errors=(*OF_BODIES, *OF_CHATS, "workflow_not_found", "run_not_found"),
)  # fmt: skip

_STATUS: Final = Parameter("status", {"enum": list(APPROVAL_STATES)}, "Only those in this state.")
_RUN: Final = Parameter("run", TEXT, "Only those of this run.")
_OF_PENDING: Final = (
    Parameter("tool", TEXT, "Only calls of this tool; among pending approvals only, as the next six."),
    Parameter("caller", TEXT, "Only calls that the key of this name requested."),
    Parameter("assigned", TEXT, "Only those that this name is to decide on; `me`: the key of the request."),
    Parameter("q", {**TEXT, "maxLength": QUERY_CHARS}, "Only those with this text in an argument, a name or an id."),
    Parameter("equal_to", TEXT, "Only those with the tool and the arguments of this approval, byte for byte."),
    Parameter("since", NUMBER, "Only those that wait since then or a later time (Unix time, in seconds)."),
    Parameter("until", NUMBER, "Only those that wait since an earlier time (Unix time, in seconds)."),
)
_NOTING: Final = (*OF_BODIES, "approval_not_found", "decision_conflict")
_BY: Final = Parameter("by", {"enum": list(GROUPINGS), "default": "call"}, "What the calls of a group share.")
_WAIT: Final = Parameter("wait", {**NUMBER, "minimum": 0, "maximum": 60}, "Seconds to wait for a decision.")
_STATE: Final = Parameter("state", {"enum": list(RUN_STATES)}, "Only those in this state.")
_ORDER: Final = Parameter(
    "order", {"enum": list(ORDERS), "default": "oldest"}, "`urgency`: those that expire first, of `status=pending`."
)
_OF_RUNS: Final = (
    Parameter("kind", {"enum": list(KINDS)}, "Only those of this kind."),
    Parameter("caller", TEXT, "Only those of the key of this name."),
    Parameter("workflow", TEXT, "Only those of the workflow of this name."),
    Parameter("since", NUMBER, "Only those that began then or later (Unix time, in seconds)."),
    Parameter("until", NUMBER, "Only those that began before then (Unix time, in seconds)."),
)
_FORMAT: Final = Parameter(
    "format", {"enum": list(FORMATS)}, "`csv`: all that fit as a table for spreadsheets, without `limit`."
)
_AFTER: Final = Parameter("after", WHOLE, "Only lines behind this one.")
_CATEGORY: Final = Parameter("category", TEXT, "Only those of this category.")
_PROMPTS, _SERVICES = "/v1/system-prompts", "/mcp/services"
_ADMIN: Final[tuple[Scope, ...]] = ("admin",)
_CONTEXT: Final[tuple[Scope, ...]] = ("context",)
_MEMORIES: Final = "/context/memories"
_KEYS: Final = "/context/keys"
_REMEMBERING: Final[tuple[Scope, ...]] = ("context", "admin")
_WHOSE: Final = (
    Parameter("user", TEXT, "Id of the end user (`X-Context-User`, or `user` of requests)."),
    Parameter("key", TEXT, "Name of a key, for memories without a user; those of another key need scope `admin`."),
    Parameter("X-Context-User", TEXT, "As `user`.", "header"),
)
_CHANGING: Final = ("prompt_is_configured", "prompt_not_found")

OPERATIONS: Final[Sequence[Operation]] = (
    *(operation for dialect in map(load_dialect, STATELESS) for operation in _list_chat_operations(dialect)),
    _build_model_list_operation("/context/v1/models", "listModels"),
    _build_model_list_operation("/context/models", "listModelsWithoutVersion"),
    *(
        Operation(
            method="GET", path=f"{base}/models/{{model}}", name=f"getModel{suffix}", tag="Chat", scopes=_CONTEXT,
            summary="Get a model in Anthropic's form, with `anthropic-version`; without it, from the upstream",
            answers=build_json_answers("The model.", OBJECT), errors=("unknown_route", "upstream_error"),
        )
        for base, suffix in (("/context/v1", ""), ("/context", "WithoutVersion"))
    ),
    Operation(
        method="POST", path="/context/explain", name="explain", tag="Chat", scopes=("context",), body="ExplainRequest",
        summary="Show what a chat or a response would become, without calling a model", parameters=STEERING[:-1],
        answers=build_json_answers("The request that the model would get.", build_reference("Explanation")),
        errors=(*OF_CHATS, *OF_RESPONSES),
    ),
    *RESPONSE_OPERATIONS,
    *(
        _post(
            path, f"countMessageTokens{suffix}", "Estimate the tokens of a request of Messages", "Chat",
            build_reference("MessageTokens"), scopes=_CONTEXT, body="MessagesRequest",
            errors=("missing_field", "unknown_parameter", "unsupported_parameter"),
        )
        for path, suffix in zip(build_paths("messages/count_tokens"), _WAYS, strict=True)
    ),
    _get(_PROMPTS, "listPrompts", "List the system prompts", "Prompts", build_page_schema("Prompt"), scopes=_CONTEXT,
         parameters=(_BEHIND, _MANY)),
    _get(
        _PROMPTS + "/{id}", "getPrompt", "Get a system prompt", "Prompts", build_reference("PromptWithText"),
        scopes=_CONTEXT,
        errors=("prompt_not_found",),
    ),
    Operation(
        method="GET", path=_PROMPTS + "/{id}/enhanced", name="getEnhancedPrompt", tag="Prompts", scopes=_CONTEXT,
        summary="Get a system prompt as a model gets it", head=True, errors=("prompt_not_found", "unknown_route"),
        parameters=(Parameter("If-None-Match", TEXT, "The ETag of an earlier answer.", "header"),),
        answers=build_json_answers("The prompt.", build_reference("EnhancedPrompt"))
        | {304: OperationAnswer("The prompt still has this ETag.", {})},
    ),
    _post(
        _PROMPTS + "/{id}", "putPrompt", "Store a system prompt", "Prompts", build_reference("PromptWithText"),
        scopes=_ADMIN,
        method="PUT", body="PromptBody", errors=_CHANGING[:1],
    ),
    _post(
        _PROMPTS + "/{id}", "deletePrompt", "Delete a stored system prompt", "Prompts",
        build_reference("PromptDeleted"),
        scopes=_ADMIN, method="DELETE", errors=_CHANGING,
    ),
    _get("/workflows", "listWorkflows", "List the workflows", "Workflows", build_page_schema("Workflow"),
    scopes=_CONTEXT,
         parameters=(_CATEGORY, _BEHIND, _MANY)),
    _get("/workflows/categories", "listWorkflowCategories", "List the categories of workflows", "Workflows",
         build_list_schema("WorkflowCategory"), scopes=_CONTEXT),
    _get("/workflows/{name}", "getWorkflow", "Get a workflow with its parameters", "Workflows",
         build_reference("WholeWorkflow"),
         scopes=_CONTEXT, errors=("workflow_not_found",)),
    _RUN_WORKFLOW,
    _get("/context/approvals", "listApprovals", "List approvals, the oldest first", "Approvals",
         build_page_schema("NotedApproval"),
         parameters=(_STATUS, _CONVERSATION, _RUN, *_OF_PENDING, _ORDER, _BEHIND, _LIMIT)),
    _get("/context/approvals/groups", "groupApprovals", "Count pending approvals in groups, the largest group first",
         "Approvals", with_fields(build_list_schema("CallGroup"), more=TRUTH),
         parameters=(_BY, _CONVERSATION, _RUN, *_OF_PENDING, _LIMIT)),
    _get("/context/approvals/{id}", "getApproval", "Get an approval; with `wait`, once it is decided", "Approvals",
         build_reference("OneApproval"), parameters=(_WAIT,), errors=("approval_not_found",)),
    _get("/context/approvals/{id}/preview", "previewApproval", "Show what a pending call would change", "Approvals",
         build_reference("Preview"), scopes=("approve",), errors=("approval_not_found",)),
    _post("/context/approvals/batch", "decideApprovals", "Decide on several approvals", "Approvals",
          build_list_schema("BatchEntry"), scopes=("approve",), body="Batch"),
    _post("/context/approvals/{id}", "decideApproval", "Decide on an approval (scope `approve`)", "Approvals",
          build_reference("Approval"), scopes=VIEWING, body="Decision", errors=(*OF_BODIES, *OF_DECISIONS)),
    _post("/context/approvals/{id}/assign", "assignApproval", "Say who is to decide on a pending call", "Approvals",
          build_reference("NotedApproval"), scopes=("approve",), body="Assignment", errors=_NOTING),
    _post("/context/approvals/{id}/notes", "noteOnApproval", "Note something on a pending call", "Approvals",
          build_reference("NotedApproval"), scopes=("approve",), body="Note", errors=_NOTING),
    _get("/context/grants", "listGrants", "List remembered approvals", "Approvals", build_page_schema("Grant"),
         parameters=(_BEHIND, _MANY)),
    _delete("/context/grants/{id}", "revokeGrant", "Revoke a remembered approval", "Approvals",
            errors=("grant_not_found",)),
    _get("/context/asks", "listAsks", "List conversations that ask before each call", "Approvals",
    build_page_schema("Ask"),
         parameters=(_BEHIND, _MANY)),
    _delete("/context/asks/{id}", "revokeAsk", "End \"ask me before\" of a conversation", "Approvals",
            errors=("grant_not_found",)),
    _get(_MEMORIES, "listMemories", "List memories of an end user, or of a key, the newest first", "Memories",
         build_page_schema("Memory"), scopes=_REMEMBERING, errors=("invalid_header",),
         parameters=(*_WHOSE, _BEHIND, _LIMIT)),
    Operation(
        method="DELETE", path=_MEMORIES, name="deleteMemories", tag="Memories", scopes=_REMEMBERING,
        summary="Delete all memories of an end user, or of a key", parameters=_WHOSE,
        answers=build_json_answers("Deleted.", build_reference("MemoriesDeleted")),
        errors=(*OF_QUERIES, "invalid_header", "missing_field"),
    ),
    _delete(_MEMORIES + "/{id}", "deleteMemory", "Delete a memory", "Memories", scopes=_REMEMBERING,
            errors=("memory_not_found",)),
    _SOCKET,
    _get("/context/runs", "listRuns", "List runs, the newest first", "Runs", build_page_schema("Run"),
         parameters=(_STATE, _CONVERSATION, *_OF_RUNS, _BEHIND, _LIMIT, _FORMAT)),
    _get("/context/runs/{id}", "getRun", "Get a run with its steps", "Runs", build_reference("WholeRun"),
         errors=("run_not_found",)),
    _EVENTS,
    _post("/context/runs/{id}/cancel", "cancelRun", "End a run", "Runs", build_reference("Run"), scopes=VIEWING,
          errors=("run_not_found", "run_ended", "scope_missing")),
    _post("/context/runs/{id}/resume", "settleStep",
          "Continue a parked run with {}, or settle a call (`step` and `as`: scope `approve`)", "Runs",
          build_reference("Run"), scopes=VIEWING, body="Finding",
          errors=("run_not_found", "run_ended", "run_not_waiting", "scope_missing", "own_call")),
    _get("/context/summary", "getSummary", "Count what waits: pending approvals, and runs that have not ended", "Runs",
         build_reference("Summary")),
    _get("/context/audit", "listAudit", "Read the audit log", "Runs", build_page_schema("AuditLine"), scopes=_ADMIN,
         parameters=(_AFTER, _LIMIT, _FORMAT)),
    _get("/context/audit/verification", "verifyAudit",
         "Verify the hashes of the audit log; ask again until `complete`", "Runs", build_reference("AuditVerification"),
         scopes=_ADMIN, parameters=(Parameter("from", {"enum": ["start"]}, "`start`: begin with the first line."),)),
    _get("/context/tools", "listTools", "List the tools in use, those of MCP servers included", "Operating",
         build_page_schema("Tool"), parameters=(_BEHIND, _MANY)),
    *(operation for feature in collect_descriptions() for operation in feature.operations),
    _get("/context/upstreams", "listUpstreams", "List the upstreams: their endpoints, and how requests ended",
         "Operating", build_list_schema("Upstream"), scopes=_ADMIN),
    _get("/context/status", "getStatus", "Get versions, upstreams, configuration, problems and recent figures",
         "Operating", build_reference("GatewayStatus"), scopes=_ADMIN),
    _get(_KEYS, "listKeys", "List the keys of the tenant, the newest first, then those of the configuration", "Keys",
         build_page_schema("Key"), scopes=_ADMIN, parameters=(_BEHIND, _LIMIT)),
    _post(_KEYS, "createKey", "Make a key: `key` is its text, which only this answer has", "Keys",
          build_reference("NewKey"), scopes=_ADMIN, body="KeyTerms", status=201,
          errors=("key_too_wide", "key_exists", "runtime_keys_off", "too_many_keys")),
    _get(_KEYS + "/{id}", "getKey", "Get a key that was made at run time", "Keys", build_reference("Key"),
         scopes=_ADMIN,
         errors=("key_not_found",)),
    _post(_KEYS + "/{id}/rotate", "rotateKey", "Make a key in the place of another one, which stays valid for a while",
          "Keys", build_reference("NewKey"), scopes=_ADMIN, body="Rotation", status=201, required=False,
          errors=("key_not_found", "key_ended", "key_is_configured", "key_too_wide", "runtime_keys_off")),
    _delete(_KEYS + "/{id}", "revokeKey", "Revoke a key", "Keys", scopes=_ADMIN,
            errors=("key_not_found", "key_ended", "key_is_configured")),
    _get(_SERVICES, "listServices", "List the MCP servers", "Services", build_page_schema("Service"), scopes=_ADMIN,
         parameters=(_BEHIND, _MANY)),
    _get(_SERVICES + "/{name}", "getService", "Get an MCP server", "Services", build_reference("WholeService"),
         scopes=_ADMIN,
         errors=("service_not_found",)),
    _get(_SERVICES + "/{name}/tools", "listServiceTools", "List the tools of an MCP server", "Services",
         build_list_schema("ServiceTool"), scopes=_ADMIN, errors=("service_not_found",)),
    _post(_SERVICES, "addService", "Register an MCP server", "Services", build_reference("Service"), scopes=_ADMIN,
          body="Registration", status=201, errors=("service_exists",)),
    _post(_SERVICES + "/{name}", "putService", "Change an MCP server", "Services", build_reference("Service"),
          scopes=_ADMIN,
          method="PUT", body="McpServer", errors=("service_is_configured",)),
    _post(_SERVICES + "/{name}", "deleteService", "Delete a registered MCP server", "Services",
          build_reference("ServiceDeleted"),
          scopes=_ADMIN, method="DELETE", errors=("service_not_found", "service_is_configured")),
    _build_service_operation("start", "Start an MCP server", errors=("service_not_running",)),
    _build_service_operation("stop", "Stop an MCP server"),
    _build_service_operation("restart", "Start an MCP server anew"),
    _build_service_operation("accept", "Accept changed definitions", errors=("service_not_running", "service_changed"),
             body="Acceptance"),
    Operation(
        method="GET", path="/", name="getRoot", tag="Operating", scopes=(), head=True,
        summary="Check that the gateway answers; a page for `Accept: text/html`",
        answers={200: OperationAnswer("The gateway answers.", {JSON: build_reference("Status"), "text/html": None})},
    ),
    _get("/openapi.json", "getDescription", "Get this description", "Operating", {"type": "object"}, scopes=()),
    _get("/health/live", "getLiveness", "Check that the gateway runs", "Operating", build_reference("Status"),
         scopes=()),
    _READY,
    _METRICS,
)  # fmt: skip
