"""The JSON of approvals, their groups, and what is remembered of decisions, as JSON Schema."""

from gateway.api.approvals import STATES
from gateway.api.openapi.shapes import (
    OBJECT,
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


def schemas_of_approvals() -> dict[str, Schema]:
    """Return the schemas of answers by name."""
    note = record(by=TEXT, via=TEXT, at=TIME, text=TEXT)
    return {
        "Approval": with_fields(_approval(), optional=True, assigned_to=maybe(TEXT), notes=many(note)),
        "OneApproval": with_fields(_approval(), parameters=maybe(OBJECT), assigned_to=maybe(TEXT), notes=many(note)),
        "CallGroup": record(
            count=WHOLE, calls=WHOLE, expires_at=TIME, first=ref("Approval"), **some("tool", "asked_by")
        ),
        "Preview": record(
            object=only("approval.preview"), available=TRUTH, **some("reason", "label", "before", "after")
        ),
        "BatchEntry": with_fields(record(id=TEXT, status=WHOLE), optional=True, approval=ref("Approval"), error=OBJECT),
        "Grant": record(
            object=only("grant"),
            **texts("id", "caller", "tool", "sha256", "granted_by"),
            **some("run_id", "conversation", "user"),
            created_at=TIME,
            expires_at=maybe(TIME),
        ),
        "Ask": record(
            object=only("ask"),
            **texts("id", "caller", "conversation"),
            user=maybe(TEXT),
            created_at=TIME,
            expires_at=maybe(TIME),
        ),
    }


def _approval() -> Schema:
    always = texts("id", "run_id", "asked_by", "tool", "sha256", "check_word", "basis", "rule", "reason", "remember")
    perhaps = some("conversation", "user", "decided_by", "via", "comment")
    times = {"created_at": TIME, "expires_at": TIME, "decided_at": maybe(TIME)}
    states = {"enum": list(STATES)}
    objects = {"arguments": OBJECT, "edited_arguments": maybe(OBJECT), "client": maybe(OBJECT)}
    given = many(record(by=TEXT, user=maybe(TEXT), via=TEXT, at=TIME))
    return record(
        **always, **perhaps, **times, **objects, step=WHOLE, state=states, required_approvals=WHOLE, approved_by=given
    )
