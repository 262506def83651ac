"""The JSON of the gateway's own pages as JSON Schema (2020-12), for the description of the API.

Schemas of request bodies are generated from their models. Schemas of answers are written here; tests compare both with
real answers.
"""

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel

from gateway.api.admin.upstreams import STATES as ENDPOINT_STATES
from gateway.api.approvals import Assignment, Batch, Note
from gateway.api.decisions import DecisionBody
from gateway.api.mcp_services import Acceptance
from gateway.api.openapi.approvals import schemas_of_approvals
from gateway.api.openapi.shapes import (
    NUMBER,
    OBJECT,
    REFERENCE,
    TEXT,
    TIME,
    TRUTH,
    WHOLE,
    Schema,
    many,
    maybe,
    only,
    record,
    ref,
    some,
    texts,
    with_fields,
)
from gateway.api.prompts import PromptBody
from gateway.api.runs import STATES as RUN_STATES
from gateway.api.runs import SettlementBody
from gateway.api.workflows import RunBody
from gateway.config.schema.keys import KeyTerms
from gateway.config.schema.mcp import McpServer
from gateway.contracts.errors import CODES
from gateway.contracts.storage.usage import COUNTS, DIMENSIONS
from gateway.dialects.chat.body import ROLES
from gateway.dialects.loader import all_dialects

#: The models that read bodies, by the names of their schemas.
BODIES: Final[Mapping[str, type[BaseModel]]] = {
    "Acceptance": Acceptance,
    "Assignment": Assignment,
    "Batch": Batch,
    "Decision": DecisionBody,
    "Finding": SettlementBody,
    "KeyTerms": KeyTerms,
    "McpServer": McpServer,
    "Note": Note,
    "PromptBody": PromptBody,
    "RunBody": RunBody,
}


def schemas() -> dict[str, Schema]:
    """Return all schemas by name."""
    found: dict[str, Schema] = {}
    for name, model in BODIES.items():
        schema = model.model_json_schema(ref_template=REFERENCE + "{model}")
        found |= schema.pop("$defs", {})
        found[name] = schema
    found |= _answers() | _answers_of_runs() | _of_memories() | _answers_of_services() | _answers_of_operating()
    found |= _of_responses() | _of_keys() | schemas_of_approvals()
    found |= {"Error": _error(), "ChatRequest": _chat_request()}
    found["ExplainRequest"] = {"anyOf": [ref("ChatRequest"), ref("ResponseRequest")]}
    for dialect in all_dialects():
        found |= dialect.description.schemas
    return dict(sorted(found.items()))


def _of_keys() -> dict[str, Schema]:
    """Return the schemas of keys. A configured one has its name as its id, and its maker is unknown."""
    key = record(
        object=only("key"),
        **texts("id", "name", "tenant"),
        **dict.fromkeys(("scopes", "models", "tools", "upstreams", "networks"), many(TEXT)),
        **some("expires", "approvals", "hint", "created_by", "revoked_by", "rotated_from"),
        metadata={"type": "object", "additionalProperties": TEXT},
        state={"enum": ["valid", "expired", "revoked"]},
        origin={"enum": ["store", "configuration"]},
        **dict.fromkeys(("created_at", "revoked_at", "used_at"), maybe(TIME)),
    )
    grace = {"type": ["string", "number"], "description": "How long the old key stays valid, such as `1h`."}
    return {
        "Key": key,
        "NewKey": with_fields(key, key=TEXT),
        "Rotation": {"type": "object", "properties": {"grace": grace}},
    }


def _of_memories() -> dict[str, Schema]:
    return {
        "Memory": record(
            object=only("memory"), **texts("id", "text"), **some("user", "key", "conversation"), created_at=TIME
        ),
        "MemoriesDeleted": record(object=only("memories.deleted"), deleted=WHOLE),
    }


def _of_responses() -> dict[str, Schema]:
    """Return the schemas of the pages beside responses. Items are as OpenAI has them, with an id in any case."""
    metadata = {"type": ["object", "null"], "additionalProperties": TEXT}
    items = {"type": ["array", "null"], "items": OBJECT, "maxItems": 20}
    conversation_of = {"model": TEXT, "input": {"type": ["string", "array", "null"], "items": OBJECT}}
    further = {"instructions": {"type": ["string", "array", "null"], "items": OBJECT}}
    return {
        "Item": record(**texts("id", "type")),
        "Items": record(object=only("list"), data=many(ref("Item")), **some("first_id", "last_id"), has_more=TRUTH),
        "ItemsRequest": record(items={"type": "array", "items": OBJECT, "minItems": 1, "maxItems": 20}),
        "ResponseDeleted": record(id=TEXT, object=only("response"), deleted=only(value=True)),
        "Compaction": record(
            id=TEXT, object=only("response.compaction"), created_at=WHOLE, output=many(ref("Item")), usage=OBJECT
        ),
        "CompactionRequest": {
            "type": "object",
            "properties": {**conversation_of, **further, "previous_response_id": maybe(TEXT)},
            "required": ["model"],
        },
        "Conversation": record(
            id=TEXT,
            object=only("conversation"),
            created_at=WHOLE,
            metadata={"type": "object", "additionalProperties": TEXT},
        ),
        "ConversationRequest": {"type": "object", "properties": {"items": items, "metadata": metadata}},
        "ConversationChange": record(metadata={"type": "object", "additionalProperties": TEXT}),
        "ConversationDeleted": record(id=TEXT, object=only("conversation.deleted"), deleted=only(value=True)),
    }


def _answers() -> dict[str, Schema]:
    return {
        "Status": record(status={"enum": ["ok", "ready", "draining", "store_lost"]}),
        "Chat": record(
            object=only("chat.completion"), **texts("id", "model"), created=WHOLE, choices=many(OBJECT), usage=OBJECT
        ),
        "Models": record(object=only("list"), data=many(OBJECT)),
        "Explanation": record(lane=only("context"), chain=TEXT, workflow=maybe(OBJECT)),
        "Prompt": _prompt(),
        "PromptWithText": with_fields(_prompt(), text=TEXT),
        "EnhancedPrompt": record(
            id=TEXT,
            object=only("system_prompt.enhanced"),
            text=TEXT,
            characters=WHOLE,
            estimated_tokens=maybe(WHOLE),
            omitted_tools=many(TEXT),
        ),
        "PromptDeleted": record(id=TEXT, object=only("system_prompt.deleted"), deleted=only(value=True)),
        "Summary": record(
            object=only("summary"),
            pending=WHOLE,
            next_expires_at=maybe(TIME),
            runs={"type": "object", "additionalProperties": WHOLE, "description": "By state; of those not ended."},
        ),
        "AuditLine": _audit_line(),
        "Workflow": _workflow(),
        "WholeWorkflow": with_fields(_workflow(), parameters=OBJECT, steps=many(record(name=TEXT, kind=TEXT))),
        "WorkflowCategory": record(name=TEXT, object=only("workflow.category"), workflows=many(TEXT)),
    }


def _answers_of_runs() -> dict[str, Schema]:
    return {
        "Run": _run(),
        "WholeRun": with_fields(
            _run(),
            steps=many(ref("Step")),
            approvals=many(ref("Approval")),
            model_calls=many(ref("ModelCall")),
            answer=maybe(OBJECT),
            error=maybe(record(code=TEXT, message=maybe(TEXT))),
        ),
        "Step": _step(),
        "ModelCall": record(
            round=WHOLE,
            started_at=TIME,
            spent_s=NUMBER,
            **some("model"),
            prompt_tokens=maybe(WHOLE),
            completion_tokens=maybe(WHOLE),
            upstream=maybe(TEXT),
            endpoint=maybe(TEXT),
        ),
    }


def _answers_of_services() -> dict[str, Schema]:
    return {
        "Service": _service(),
        "ServiceDeleted": record(name=TEXT, object=only("mcp.service.deleted"), deleted=only(value=True)),
        "ServiceTool": with_fields(
            _tool_definition(),
            object=only("mcp.tool"),
            name=TEXT,
            model_name=TEXT,
            sha256=TEXT,
            accepted_sha256=maybe(TEXT),
            accepted={
                **maybe(ref("ToolDefinition")),
                "description": "Of a changed tool: the accepted definition; null if it is not known.",
            },
            changed=TRUTH,
        ),
        "ToolDefinition": _tool_definition(),
        "Registration": {"allOf": [record(name=TEXT), OBJECT], "description": "`name`, and the fields of McpServer."},
    }


def _answers_of_operating() -> dict[str, Schema]:
    figures = ("overhead_ms", "approval_wait_s")
    point = record(
        at=TIME, span_s=NUMBER, requests=WHOLE, errors=WHOLE, pending=WHOLE, **dict.fromkeys(figures, maybe(NUMBER))
    )
    usage = {"object": only("usage"), "enabled": TRUTH, "by": many(TEXT)}
    sums = record(cost=maybe(NUMBER), currency=maybe(TEXT), **dict.fromkeys(COUNTS, WHOLE))
    return {
        "Tool": record(
            object=only("tool"),
            **texts("name", "model_name", "description", "category"),
            source={"enum": ["built_in", "plugin", "mcp"]},
            service=maybe(TEXT),
            parameters=OBJECT,
            keywords=many(TEXT),
            **dict.fromkeys(("requires_approval", "untrusted", "idempotent", "changed"), TRUTH),
        ),
        "AuditVerification": record(
            object=only("audit.verification"),
            **dict.fromkeys(("verified", "complete"), TRUTH),
            **dict.fromkeys(("lines", "until_seq"), WHOLE),
            **some("until_hash", "problem"),
        ),
        "Limit": record(
            **texts("scope", "name", "limit"),
            **dict.fromkeys(("used", "most"), NUMBER),
            tenant=maybe(TEXT),
            resets_in_s=maybe(NUMBER),
            soft=TRUTH,
            over=WHOLE,
            obstacle=maybe(TEXT),
        ),
        "Upstream": _upstream(),
        "Usage": record(
            **usage, **texts("from", "to"), data=many(with_fields(sums, optional=True, **texts(*DIMENSIONS)))
        ),
        "GatewayStatus": record(
            object=only("status"),
            **texts("version", "python", "aiohttp"),
            started_at=TIME,
            uptime_s=NUMBER,
            workers=WHOLE,
            upstreams=many(
                record(**texts("name", "base_url"), up=maybe(TRUTH), **dict.fromkeys(("idle", "busy"), WHOLE))
            ),
            configuration=OBJECT,
            problems=many(TEXT),
            history=record(step_s=NUMBER, points=many(point)),
        ),
    }


def _upstream() -> Schema:
    endpoint = record(
        **texts("name", "url"),
        state={"enum": list(ENDPOINT_STATES)},
        retry_in_s=maybe(NUMBER),
        **dict.fromkeys(("under_way", "concurrent"), maybe(WHOLE)),
        weight=WHOLE,
        models=many(TEXT),
        **dict.fromkeys(("tries", "ejections", "answers"), maybe(OBJECT)),
        last_status=maybe(WHOLE),
    )
    return record(
        object=only("upstream"),
        **texts("name", "balance"),
        fallback=many(TEXT),
        connections=record(busy=WHOLE, idle=WHOLE),
        **dict.fromkeys(("queued", "sent", "failed", "not_sent"), WHOLE),
        **dict.fromkeys(("requests", "retries", "refused"), OBJECT),
        endpoints=many(endpoint),
    )


def _error() -> Schema:
    codes = {"enum": sorted(CODES), "type": "string", "description": "One for each cause: docs/errors.md."}
    types = {"enum": sorted({code.type for code in CODES.values()}), "type": "string"}
    return record(error=record(message=TEXT, type=types, param=maybe(TEXT), code=codes))


def _chat_request() -> Schema:
    message = with_fields(
        record(role={"enum": list(ROLES)}),
        optional=True,
        content={"type": ["string", "array", "null"]},
        tool_calls={"type": ["array", "null"], "items": OBJECT},
        tool_call_id=maybe(TEXT),
        name=maybe(TEXT),
    )
    return {
        **with_fields(
            record(messages={"type": "array", "items": message, "minItems": 1}),
            optional=True,
            model={"type": ["string", "null"], "description": "Required, unless `context.model` names one."},
            stream={"type": ["boolean", "null"]},
            stream_options=maybe(OBJECT),
            tools={"type": ["array", "null"], "items": OBJECT},
            functions={"type": ["array", "null"], "items": OBJECT},
            response_format=maybe(OBJECT),
            n={"enum": [1, None]},
            logprobs={"enum": [False, None]},
            user=maybe(TEXT),
        ),
        "description": "OpenAI's chat completion request. Fields that are not listed go to the model unchanged.",
    }


def _prompt() -> Schema:
    source = {"enum": ["configured", "stored"]}
    counted = {"version": maybe(WHOLE), "updated_at": maybe(WHOLE), "characters": WHOLE}
    return record(id=TEXT, object=only("system_prompt"), source=source, **counted)


def _run() -> Schema:
    always, states = texts("id", "kind", "chain", "caller"), {"enum": list(RUN_STATES)}
    times = {"created_at": TIME, "updated_at": TIME, "lease_until": maybe(TIME)}
    return record(
        object=only("run"),
        **always,
        **some("conversation", "workflow", "tool"),
        client=maybe(OBJECT),
        **times,
        state=states,
        effects=TRUTH,
        pending=WHOLE,
    )


def _step() -> Schema:
    always = texts("tool", "sha256", "decision", "basis", "rule", "reason", "state")
    perhaps = some("call_id", "approval_id", "result", "late")
    times = {"started_at": maybe(TIME), "finished_at": maybe(TIME)}
    return record(**always, **perhaps, **times, number=WHOLE, round=WHOLE, arguments=OBJECT, tainted=TRUTH)


def _audit_line() -> Schema:
    whose = texts("tenant", "caller", "run_id", "event", "tool", "sha256", "decision", "basis", "rule", "by", "via")
    return record(seq=WHOLE, step=WHOLE, created_s=TIME, **whose, hash=TEXT)


def _workflow() -> Schema:
    return record(name=TEXT, object=only("workflow"), category=TEXT, description=TEXT)


def _tool_definition() -> Schema:
    schemas = {"parameters": OBJECT, "output_schema": maybe(OBJECT), "annotations": maybe(OBJECT)}
    return record(description=TEXT, title=maybe(TEXT), **schemas)


def _service() -> Schema:
    return record(
        object=only("mcp.service"),
        **texts("name", "source", "state", "description"),
        **some("error", "transport", "protocol"),
        **dict.fromkeys(("restarts", "skipped_lines", "tools"), WHOLE),
        **dict.fromkeys(("degraded", "stopped"), TRUTH),
        **dict.fromkeys(("trigger_keywords", "changed"), many(TEXT)),
        since=maybe(TIME),
        settings=maybe(OBJECT),
        workers=many(record(worker=TEXT, state=TEXT, error=maybe(TEXT), updated_at=TIME)),
    )
