"""The schemas of views: named and required as answers have them."""

from typing import Annotated, Any, Literal

import pytest
from msgspec import UNSET, Meta, UnsetType

from gateway.api.openapi import views
from gateway.api.openapi.schemas import BODIES
from gateway.api.openapi.views import describe_views
from gateway.contracts.views import UnixTime, View


class BoxView(View, frozen=True):
    """A box
    with something in it."""

    content: str


class ShelfView(View, frozen=True, kw_only=True):
    note: str | UnsetType = UNSET
    object: Literal["shelf"] = "shelf"
    title: str | None = None
    built_at: UnixTime
    boxes: list[BoxView]
    counts: Annotated[dict[str, int], Meta(description="By size.")]
    free: Any


def test_fields_are_required_unless_they_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A default is in each answer. Names are those of the classes, without their last word."""
    monkeypatch.setattr(views, "VIEWS", (ShelfView,))
    assert describe_views() == {
        "Shelf": {
            "type": "object",
            "properties": {
                "note": {"type": "string"},
                "object": {"const": "shelf"},
                "title": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "built_at": {"type": "number", "description": "Unix time, in seconds."},
                "boxes": {"type": "array", "items": {"$ref": "#/components/schemas/Box"}},
                "counts": {"type": "object", "additionalProperties": {"type": "integer"}, "description": "By size."},
                "free": {},
            },
            "required": ["object", "title", "built_at", "boxes", "counts", "free"],
        },
        "Box": {
            "type": "object",
            "description": "A box with something in it.",
            "properties": {"content": {"type": "string"}},
            "required": ["content"],
        },
    }


def test_no_view_has_the_name_of_a_body() -> None:
    """One would take the place of the other."""
    assert not {*describe_views()} & {*BODIES}
