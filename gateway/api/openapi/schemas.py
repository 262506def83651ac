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
    many,
    maybe,
    only,
    record,
    ref,
    some,
    texts,
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


def schemas() -> dict[str, Schema]:
    """Return all schemas by name."""
    found: dict[str, Schema] = {}
    for name, model in BODIES.items():
        schema = model.model_json_schema(ref_template=REFERENCE + "{model}")
        found |= schema.pop("$defs", {})
        found[name] = schema
    found |= describe_views() | _build_response_schemas() | _of_others()
    for feature in collect_descriptions():
        found |= feature.schemas
    found |= {"Error": _error(), "ChatRequest": _chat_request()}
    found["ExplainRequest"] = {"anyOf": [ref("ChatRequest"), ref("ResponseRequest")]}
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


def _of_others() -> dict[str, Schema]:
    grace = {"type": ["string", "number"], "description": "How long the old key stays valid, such as `1h`."}
    return {
        "Status": record(status={"enum": ["ok", "ready", "draining", "store_lost"]}),
        "Chat": record(
            object=only("chat.completion"), **texts("id", "model"), created=WHOLE, choices=many(OBJECT), usage=OBJECT
        ),
        "Models": record(object=only("list"), data=many(OBJECT)),
        "Explanation": record(lane=only("context"), chain=TEXT, workflow=maybe(OBJECT)),
        "Registration": {"allOf": [record(name=TEXT), OBJECT], "description": "`name`, and the fields of McpServer."},
        "Rotation": {"type": "object", "properties": {"grace": grace}},
    }


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
