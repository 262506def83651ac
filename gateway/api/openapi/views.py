"""The views of the gateway's own pages as JSON Schema. The schema of `RunView` is called `Run`."""

from typing import Final

from msgspec.json import schema_components

from gateway.api.admin.audit import AuditVerificationView
from gateway.api.admin.status import GatewayStatusView
from gateway.api.admin.tools import ToolView
from gateway.api.admin.upstreams import UpstreamView
from gateway.api.approvals import BatchEntryView, OneApprovalView
from gateway.api.grants import AskView, GrantView
from gateway.api.mcp_services import ServiceDeletedView, ServiceToolView, ServiceView, WholeServiceView
from gateway.api.memories import MemoriesDeletedView, MemoryView
from gateway.api.openapi.shapes import REFERENCE, Schema
from gateway.api.prompts import EnhancedPromptView, PromptDeletedView, PromptView, PromptWithTextView
from gateway.api.views import AuditLineView, CallGroupView, PreviewView, RunView, SummaryView, WholeRunView
from gateway.api.workflows import WholeWorkflowView, WorkflowCategoryView, WorkflowView
from gateway.approvals.approval_struct import NotedApprovalView
from gateway.auth.key_view import KeyView, NewKeyView
from gateway.contracts.views import View

#: The views that operations answer. The views inside them are described with them.
VIEWS: Final[tuple[type[View], ...]] = (
    *(NotedApprovalView, OneApprovalView, CallGroupView, PreviewView, BatchEntryView, GrantView, AskView),
    *(RunView, WholeRunView, SummaryView, AuditLineView, AuditVerificationView),
    *(MemoryView, MemoriesDeletedView, KeyView, NewKeyView),
    *(PromptView, PromptWithTextView, EnhancedPromptView, PromptDeletedView),
    *(WorkflowView, WholeWorkflowView, WorkflowCategoryView),
    *(ServiceView, WholeServiceView, ServiceDeletedView, ServiceToolView),
    *(ToolView, UpstreamView, GatewayStatusView),
)
_SUFFIX: Final = "View"


def describe_views() -> dict[str, Schema]:
    """Return the schemas of all views by name."""
    _, found = schema_components(VIEWS, ref_template=REFERENCE + "{name}")
    return {name.removesuffix(_SUFFIX): _adapt(schema) for name, schema in found.items()}


def _adapt(schema: Schema) -> Schema:
    """Return a schema as the description has it.

    A field with a default is in each answer, and so required. A title would repeat the name of the class.
    """
    found: Schema = {}
    for key, value in schema.items():
        if key == "properties":
            found[key] = {name: _adapt(inner) for name, inner in value.items()}
        elif key == "required":
            found[key] = [name for name, it in schema["properties"].items() if name in value or "default" in it]
        elif key == "anyOf":
            found[key] = [_adapt(inner) for inner in value]
        elif key in ("items", "additionalProperties"):
            found[key] = _adapt(value)
        elif key == "$ref":
            found[key] = value.removesuffix(_SUFFIX)
        elif key == "description":
            found[key] = " ".join(value.split())
        elif key == "enum" and len(value) == 1:
            found["const"] = value[0]
        elif key not in ("title", "default"):
            found[key] = value
    return found
