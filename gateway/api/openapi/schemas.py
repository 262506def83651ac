"""The JSON of the gateway's own pages as JSON Schema (2020-12), for the description of the API.

Schemas of request bodies are generated from their models, and schemas of answers from their views. Objects that other
specifications define are described here. Tests compare all of them with real answers.
"""

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel

from gateway.api.approvals import Assignment, Batch, Note
from gateway.api.decisions import DecisionBody
from gateway.api.mcp_services import Acceptance
from gateway.api.openapi.feature_description import collect_descriptions
from gateway.api.openapi.shapes import (
    OBJECT,
    REFERENCE,
    TEXT,
    TRUTH,
    WHOLE,
    Schema,
    build_array_schema,
    build_constant_schema,
    build_nullable_schema,
    build_nullable_text_fields,
    build_reference,
    build_text_fields,
    record,
    with_fields,
)
from gateway.api.openapi.views import describe_views
from gateway.api.prompts import PromptBody
from gateway.api.runs import SettlementBody
from gateway.api.workflows import RunBody
from gateway.config.schema.keys import KeyTerms
from gateway.config.schema.mcp import McpServer
from gateway.contracts.errors import CODES
from gateway.dialects.chat.body import ROLES
from gateway.dialects.loader import load_all_dialects

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


def build_schemas() -> dict[str, Schema]:
    """Return all schemas by name."""
    found: dict[str, Schema] = {}
    for name, model in BODIES.items():
        schema = model.model_json_schema(ref_template=REFERENCE + "{model}")
        found |= schema.pop("$defs", {})
        found[name] = schema
    found |= describe_views() | _build_response_schemas() | _build_schemas_of_others()
    for feature in collect_descriptions():
        found |= feature.schemas
    found |= {"Error": _build_error_schema(), "ChatRequest": _build_chat_request_schema()}
    found["ExplainRequest"] = {"anyOf": [build_reference("ChatRequest"), build_reference("ResponseRequest")]}
    for dialect in load_all_dialects():
        found |= dialect.description.schemas
    return dict(sorted(found.items()))


def _build_response_schemas() -> dict[str, Schema]:
    """Return the schemas of the pages beside responses. Items are as OpenAI has them, with an id in any case."""
    metadata = {"type": ["object", "null"], "additionalProperties": TEXT}
    items = {"type": ["array", "null"], "items": OBJECT, "maxItems": 20}
    conversation_of = {"model": TEXT, "input": {"type": ["string", "array", "null"], "items": OBJECT}}
    further = {"instructions": {"type": ["string", "array", "null"], "items": OBJECT}}
    return {
        "Item": record(**build_text_fields("id", "type")),
        "Items": record(
            object=build_constant_schema("list"),
            data=build_array_schema(build_reference("Item")),
            **build_nullable_text_fields("first_id", "last_id"),
            has_more=TRUTH,
        ),
        "ItemsRequest": record(items={"type": "array", "items": OBJECT, "minItems": 1, "maxItems": 20}),
        "ResponseDeleted": record(
            id=TEXT, object=build_constant_schema("response"), deleted=build_constant_schema(value=True)
        ),
        "Compaction": record(
            id=TEXT,
            object=build_constant_schema("response.compaction"),
            created_at=WHOLE,
            output=build_array_schema(build_reference("Item")),
            usage=OBJECT,
        ),
        "CompactionRequest": {
            "type": "object",
            "properties": {**conversation_of, **further, "previous_response_id": build_nullable_schema(TEXT)},
            "required": ["model"],
        },
        "Conversation": record(
            id=TEXT,
            object=build_constant_schema("conversation"),
            created_at=WHOLE,
            metadata={"type": "object", "additionalProperties": TEXT},
        ),
        "ConversationRequest": {"type": "object", "properties": {"items": items, "metadata": metadata}},
        "ConversationChange": record(metadata={"type": "object", "additionalProperties": TEXT}),
        "ConversationDeleted": record(
            id=TEXT, object=build_constant_schema("conversation.deleted"), deleted=build_constant_schema(value=True)
        ),
    }


def _build_schemas_of_others() -> dict[str, Schema]:
    grace = {"type": ["string", "number"], "description": "How long the old key stays valid, such as `1h`."}
    return {
        "Status": record(status={"enum": ["ok", "ready", "starting", "draining", "store_lost"]}),
        "Chat": record(
            object=build_constant_schema("chat.completion"),
            **build_text_fields("id", "model"),
            created=WHOLE,
            choices=build_array_schema(OBJECT),
            usage=OBJECT,
        ),
        "Models": record(object=build_constant_schema("list"), data=build_array_schema(OBJECT)),
        "MessageTokens": record(input_tokens=WHOLE),
        "Explanation": record(
            lane=build_constant_schema("context"), chain=TEXT, workflow=build_nullable_schema(OBJECT)
        ),
        "Registration": {"allOf": [record(name=TEXT), OBJECT], "description": "`name`, and the fields of McpServer."},
        "Rotation": {"type": "object", "properties": {"grace": grace}},
    }


def _build_error_schema() -> Schema:
    codes = {"enum": sorted(CODES), "type": "string", "description": "One for each cause: docs/errors.md."}
    types = {"enum": sorted({code.type for code in CODES.values()}), "type": "string"}
    return record(error=record(message=TEXT, type=types, param=build_nullable_schema(TEXT), code=codes))


def _build_chat_request_schema() -> Schema:
    message = with_fields(
        record(role={"enum": list(ROLES)}),
        optional=True,
        content={"type": ["string", "array", "null"]},
        tool_calls={"type": ["array", "null"], "items": OBJECT},
        tool_call_id=build_nullable_schema(TEXT),
        name=build_nullable_schema(TEXT),
    )
    return {
        **with_fields(
            record(messages={"type": "array", "items": message, "minItems": 1}),
            optional=True,
            model={"type": ["string", "null"], "description": "Required, unless `context.model` names one."},
            stream={"type": ["boolean", "null"]},
            stream_options=build_nullable_schema(OBJECT),
            tools={"type": ["array", "null"], "items": OBJECT},
            functions={"type": ["array", "null"], "items": OBJECT},
            response_format=build_nullable_schema(OBJECT),
            n={"enum": [1, None]},
            logprobs={"enum": [False, None]},
            user=build_nullable_schema(TEXT),
        ),
        "description": "OpenAI's chat completion request. Fields that are not listed go to the model unchanged.",
    }
