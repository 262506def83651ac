"""The JSON of the gateway's own pages as JSON Schema (2020-12), for the description of the API.

Schemas of request bodies are generated from their models. Those of answers are written here; tests compare both with
real answers.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from pydantic import BaseModel

from gateway.api.approvals import STATES as APPROVAL_STATES
from gateway.api.approvals import Batch
from gateway.api.decisions import DecisionBody
from gateway.api.mcp_services import Acceptance
from gateway.api.operating.usage import COUNTS
from gateway.api.prompts import PromptBody
from gateway.api.runs import STATES as RUN_STATES
from gateway.api.runs import SettlementBody
from gateway.api.workflows import RunBody
from gateway.config.schema.keys import KeyTerms
from gateway.config.schema.mcp import McpServer
from gateway.contracts.usage import DIMENSIONS
from gateway.dialects.chat.body import ROLES
from gateway.dialects.table import DIALECTS
from gateway.errors import CODES

Schema: TypeAlias = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "number"}
WHOLE: Final[Schema] = {"type": "integer"}
TRUTH: Final[Schema] = {"type": "boolean"}
OBJECT: Final[Schema] = {"type": "object"}
TIME: Final[Schema] = {"type": "number", "description": "Unix time, in seconds."}
_REFERENCE: Final = "#/components/schemas/"

#: The models that read bodies, by the names of their schemas.
BODIES: Final[Mapping[str, type[BaseModel]]] = {
    "Acceptance": Acceptance,
    "Batch": Batch,
    "Decision": DecisionBody,
    "Finding": SettlementBody,
    "KeyTerms": KeyTerms,
    "McpServer": McpServer,
    "PromptBody": PromptBody,
    "RunBody": RunBody,
}


def ref(name: str) -> Schema:
    """Return the reference to a schema of `schemas`."""
    return {"$ref": _REFERENCE + name}


def listing(name: str) -> Schema:
    """Return the schema of a list answer whose entries have the schema `name`."""
    return _of(object=_only("list"), data=_many(ref(name)))


def paged(name: str) -> Schema:
    """Return the schema of one page of a list. `next` is the `after` of the following page, or null."""
    return _of(object=_only("list"), data=_many(ref(name)), next=_maybe(TEXT))


def schemas() -> dict[str, Schema]:
    """Return all schemas by name."""
    found: dict[str, Schema] = {}
    for name, model in BODIES.items():
        schema = model.model_json_schema(ref_template=_REFERENCE + "{model}")
        found |= schema.pop("$defs", {})
        found[name] = schema
    found |= _answers() | _answers_of_runs() | _of_memories() | _answers_of_services() | _answers_of_operating()
    found |= _of_responses() | _of_keys()
    found |= {"Error": _error(), "ChatRequest": _chat_request()}
    found["ExplainRequest"] = {"anyOf": [ref("ChatRequest"), ref("ResponseRequest")]}
    for dialect in DIALECTS:
        found |= dialect.described.schemas
    return dict(sorted(found.items()))


def _of_keys() -> dict[str, Schema]:
    """Return the schemas of keys. A configured one has its name as its id, and nobody knows who made it."""
    key = _of(
        object=_only("key"),
        **_texts("id", "name", "tenant"),
        **dict.fromkeys(("scopes", "models", "tools", "upstreams", "networks"), _many(TEXT)),
        **_some("expires", "approvals", "hint", "created_by", "revoked_by", "rotated_from"),
        metadata={"type": "object", "additionalProperties": TEXT},
        state={"enum": ["valid", "expired", "revoked"]},
        origin={"enum": ["store", "configuration"]},
        **dict.fromkeys(("created_at", "revoked_at", "used_at"), _maybe(TIME)),
    )
    grace = {"type": ["string", "number"], "description": "How long the old key stays valid, such as `1h`."}
    return {"Key": key, "NewKey": _with(key, key=TEXT), "Rotation": {"type": "object", "properties": {"grace": grace}}}


def _of_memories() -> dict[str, Schema]:
    return {
        "Memory": _of(
            object=_only("memory"), **_texts("id", "text"), **_some("user", "key", "conversation"), created_at=TIME
        ),
        "MemoriesDeleted": _of(object=_only("memories.deleted"), deleted=WHOLE),
    }


def _of_responses() -> dict[str, Schema]:
    """Return the schemas of the pages beside responses. Items are as OpenAI has them, with an id in any case."""
    metadata = {"type": ["object", "null"], "additionalProperties": TEXT}
    items = {"type": ["array", "null"], "items": OBJECT, "maxItems": 20}
    conversation_of = {"model": TEXT, "input": {"type": ["string", "array", "null"], "items": OBJECT}}
    further = {"instructions": {"type": ["string", "array", "null"], "items": OBJECT}}
    return {
        "Item": _of(**_texts("id", "type")),
        "Items": _of(object=_only("list"), data=_many(ref("Item")), **_some("first_id", "last_id"), has_more=TRUTH),
        "ItemsRequest": _of(items={"type": "array", "items": OBJECT, "minItems": 1, "maxItems": 20}),
        "ResponseDeleted": _of(id=TEXT, object=_only("response"), deleted=_only(value=True)),
        "Compaction": _of(
            id=TEXT, object=_only("response.compaction"), created_at=WHOLE, output=_many(ref("Item")), usage=OBJECT
        ),
        "CompactionRequest": {
            "type": "object",
            "properties": {**conversation_of, **further, "previous_response_id": _maybe(TEXT)},
            "required": ["model"],
        },
        "Conversation": _of(
            id=TEXT,
            object=_only("conversation"),
            created_at=WHOLE,
            metadata={"type": "object", "additionalProperties": TEXT},
        ),
        "ConversationRequest": {"type": "object", "properties": {"items": items, "metadata": metadata}},
        "ConversationChange": _of(metadata={"type": "object", "additionalProperties": TEXT}),
        "ConversationDeleted": _of(id=TEXT, object=_only("conversation.deleted"), deleted=_only(value=True)),
    }


def _answers() -> dict[str, Schema]:
    return {
        "Status": _of(status={"enum": ["ok", "ready", "draining", "store_lost"]}),
        "Chat": _of(
            object=_only("chat.completion"), **_texts("id", "model"), created=WHOLE, choices=_many(OBJECT), usage=OBJECT
        ),
        "Models": _of(object=_only("list"), data=_many(OBJECT)),
        "Explanation": _of(lane=_only("context"), chain=TEXT, workflow=_maybe(OBJECT)),
        "Prompt": _prompt(),
        "PromptWithText": _with(_prompt(), text=TEXT),
        "EnhancedPrompt": _of(
            id=TEXT,
            object=_only("system_prompt.enhanced"),
            text=TEXT,
            characters=WHOLE,
            estimated_tokens=_maybe(WHOLE),
            omitted_tools=_many(TEXT),
        ),
        "PromptDeleted": _of(id=TEXT, object=_only("system_prompt.deleted"), deleted=_only(value=True)),
        "Approval": _approval(),
        "OneApproval": _with(_approval(), parameters=_maybe(OBJECT)),
        "Preview": _of(
            object=_only("approval.preview"), available=TRUTH, **_some("reason", "label", "before", "after")
        ),
        "Summary": _of(
            object=_only("summary"),
            pending=WHOLE,
            next_expires_at=_maybe(TIME),
            runs={"type": "object", "additionalProperties": WHOLE, "description": "By state; of those not ended."},
        ),
        "BatchEntry": _with(_of(id=TEXT, status=WHOLE), optional=True, approval=ref("Approval"), error=OBJECT),
        "Grant": _of(
            object=_only("grant"),
            **_texts("id", "caller", "tool", "sha256", "granted_by"),
            **_some("run_id", "conversation"),
            created_at=TIME,
            expires_at=_maybe(TIME),
        ),
        "Ask": _of(
            object=_only("ask"), **_texts("id", "caller", "conversation"), created_at=TIME, expires_at=_maybe(TIME)
        ),
        "AuditLine": _audit_line(),
        "Workflow": _workflow(),
        "WholeWorkflow": _with(_workflow(), parameters=OBJECT, steps=_many(_of(name=TEXT, kind=TEXT))),
        "WorkflowCategory": _of(name=TEXT, object=_only("workflow.category"), workflows=_many(TEXT)),
    }


def _answers_of_runs() -> dict[str, Schema]:
    return {
        "Run": _run(),
        "WholeRun": _with(
            _run(),
            steps=_many(ref("Step")),
            approvals=_many(ref("Approval")),
            model_calls=_many(ref("ModelCall")),
            answer=_maybe(OBJECT),
            error=_maybe(_of(code=TEXT, message=_maybe(TEXT))),
        ),
        "Step": _step(),
        "ModelCall": _of(
            round=WHOLE,
            started_at=TIME,
            spent_s=NUMBER,
            **_some("model", "upstream", "endpoint"),
            prompt_tokens=_maybe(WHOLE),
            completion_tokens=_maybe(WHOLE),
        ),
    }


def _answers_of_services() -> dict[str, Schema]:
    return {
        "Service": _service(),
        "ServiceDeleted": _of(name=TEXT, object=_only("mcp.service.deleted"), deleted=_only(value=True)),
        "ServiceTool": _with(
            _tool_definition(),
            object=_only("mcp.tool"),
            name=TEXT,
            model_name=TEXT,
            sha256=TEXT,
            accepted_sha256=_maybe(TEXT),
            accepted={
                **_maybe(ref("ToolDefinition")),
                "description": "Of a changed tool: the accepted definition; null if it is not known.",
            },
            changed=TRUTH,
        ),
        "ToolDefinition": _tool_definition(),
        "Registration": {"allOf": [_of(name=TEXT), OBJECT], "description": "`name`, and the fields of McpServer."},
    }


def _answers_of_operating() -> dict[str, Schema]:
    figures = dict.fromkeys(("overhead_ms", "approval_wait_s"), _maybe(NUMBER))
    point = _of(at=TIME, span_s=NUMBER, requests=WHOLE, errors=WHOLE, pending=WHOLE, **figures)
    usage = {"object": _only("usage"), "enabled": TRUTH, "by": _many(TEXT)}
    sums = _of(cost=_maybe(NUMBER), currency=_maybe(TEXT), **dict.fromkeys(COUNTS, WHOLE))
    return {
        "Tool": _of(
            object=_only("tool"),
            **_texts("name", "model_name", "description", "category"),
            source={"enum": ["built_in", "plugin", "mcp"]},
            service=_maybe(TEXT),
            parameters=OBJECT,
            keywords=_many(TEXT),
            **dict.fromkeys(("requires_approval", "untrusted", "idempotent", "changed"), TRUTH),
        ),
        "AuditVerification": _of(
            object=_only("audit.verification"),
            **dict.fromkeys(("verified", "complete"), TRUTH),
            **dict.fromkeys(("lines", "until_seq"), WHOLE),
            **_some("until_hash", "problem"),
        ),
        "Usage": _of(**usage, **_texts("from", "to"), data=_many(_with(sums, optional=True, **_texts(*DIMENSIONS)))),
        "GatewayStatus": _of(
            object=_only("status"),
            **_texts("version", "python", "aiohttp"),
            started_at=TIME,
            uptime_s=NUMBER,
            workers=WHOLE,
            upstreams=_many(
                _of(
                    **_texts("name", "base_url"),
                    up=_maybe(TRUTH),
                    idle=WHOLE,
                    busy=WHOLE,
                    endpoints=_many(_of(name=TEXT, up=TRUTH, requests=WHOLE)),
                )
            ),
            configuration=OBJECT,
            problems=_many(TEXT),
            history=_of(step_s=NUMBER, points=_many(point)),
        ),
    }


def _error() -> Schema:
    codes = {"enum": sorted(CODES), "type": "string", "description": "One for each cause: docs/errors.md."}
    types = {"enum": sorted({code.type for code in CODES.values()}), "type": "string"}
    return _of(error=_of(message=TEXT, type=types, param=_maybe(TEXT), code=codes))


def _chat_request() -> Schema:
    message = _with(
        _of(role={"enum": list(ROLES)}),
        optional=True,
        content={"type": ["string", "array", "null"]},
        tool_calls={"type": ["array", "null"], "items": OBJECT},
        tool_call_id=_maybe(TEXT),
        name=_maybe(TEXT),
    )
    return {
        **_with(
            _of(messages={"type": "array", "items": message, "minItems": 1}),
            optional=True,
            model={"type": ["string", "null"], "description": "Required, unless `context.model` names one."},
            stream={"type": ["boolean", "null"]},
            stream_options=_maybe(OBJECT),
            tools={"type": ["array", "null"], "items": OBJECT},
            functions={"type": ["array", "null"], "items": OBJECT},
            response_format=_maybe(OBJECT),
            n={"enum": [1, None]},
            logprobs={"enum": [False, None]},
            user=_maybe(TEXT),
        ),
        "description": "OpenAI's chat completion request. Fields that are not listed go to the model unchanged.",
    }


def _prompt() -> Schema:
    source = {"enum": ["configured", "stored"]}
    counted = {"version": _maybe(WHOLE), "updated_at": _maybe(WHOLE), "characters": WHOLE}
    return _of(id=TEXT, object=_only("system_prompt"), source=source, **counted)


def _approval() -> Schema:
    texts = _texts("id", "run_id", "asked_by", "tool", "sha256", "check_word", "basis", "rule", "reason", "remember")
    maybe = _some("conversation", "user", "decided_by", "via", "comment")
    times = {"created_at": TIME, "expires_at": TIME, "decided_at": _maybe(TIME)}
    states = {"enum": list(APPROVAL_STATES)}
    objects = {"arguments": OBJECT, "edited_arguments": _maybe(OBJECT), "client": _maybe(OBJECT)}
    return _of(**texts, **maybe, **times, **objects, step=WHOLE, state=states)


def _run() -> Schema:
    texts, states = _texts("id", "kind", "chain", "caller"), {"enum": list(RUN_STATES)}
    times = {"created_at": TIME, "updated_at": TIME, "lease_until": _maybe(TIME)}
    return _of(
        object=_only("run"),
        **texts,
        **_some("conversation", "workflow", "tool"),
        client=_maybe(OBJECT),
        **times,
        state=states,
        effects=TRUTH,
        pending=WHOLE,
    )


def _step() -> Schema:
    texts = _texts("tool", "sha256", "decision", "basis", "rule", "reason", "state")
    maybe = _some("call_id", "approval_id", "result", "late")
    times = {"started_at": _maybe(TIME), "finished_at": _maybe(TIME)}
    return _of(**texts, **maybe, **times, number=WHOLE, round=WHOLE, arguments=OBJECT, tainted=TRUTH)


def _audit_line() -> Schema:
    whose = _texts("tenant", "caller", "run_id", "event", "tool", "sha256", "decision", "basis", "rule", "by", "via")
    return _of(seq=WHOLE, step=WHOLE, created_s=TIME, **whose, hash=TEXT)


def _workflow() -> Schema:
    return _of(name=TEXT, object=_only("workflow"), category=TEXT, description=TEXT)


def _tool_definition() -> Schema:
    schemas = {"parameters": OBJECT, "output_schema": _maybe(OBJECT), "annotations": _maybe(OBJECT)}
    return _of(description=TEXT, title=_maybe(TEXT), **schemas)


def _service() -> Schema:
    return _of(
        object=_only("mcp.service"),
        **_texts("name", "source", "state", "description"),
        **_some("error", "transport", "protocol"),
        **dict.fromkeys(("restarts", "skipped_lines", "tools"), WHOLE),
        **dict.fromkeys(("degraded", "stopped"), TRUTH),
        **dict.fromkeys(("trigger_keywords", "changed"), _many(TEXT)),
        since=_maybe(TIME),
        settings=_maybe(OBJECT),
        workers=_many(_of(worker=TEXT, state=TEXT, error=_maybe(TEXT), updated_at=TIME)),
    )


def _of(**fields: Schema) -> Schema:
    """Return the schema of an object with these fields. It allows others: later versions may add some."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def _with(schema: Schema, *, optional: bool = False, **fields: Schema) -> Schema:
    required = schema["required"] if optional else [*schema["required"], *fields]
    return {**schema, "properties": {**schema["properties"], **fields}, "required": required}


def _texts(*names: str) -> dict[str, Schema]:
    """Return fields that are texts."""
    return dict.fromkeys(names, TEXT)


def _some(*names: str) -> dict[str, Schema]:
    """Return fields that are texts or null."""
    return dict.fromkeys(names, _maybe(TEXT))


def _many(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _only(value: object) -> Schema:
    return {"const": value}
