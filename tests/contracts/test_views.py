"""Views: filled from records, and written as JSON."""

from types import SimpleNamespace
from typing import Any, Literal

import orjson
import pytest
from msgspec import UNSET, UnsetType, field

from gateway.config.values.secret import MaskedText
from gateway.contracts.views import UnixTime, View, dump_view, fill_view


class InnerView(View, frozen=True):
    word: str


class OuterView(View, frozen=True, kw_only=True):
    note: str | UnsetType = UNSET
    id: str
    object: Literal["outer"] = "outer"
    created_s: UnixTime = field(name="created_at")
    inner: list[InnerView]
    free: Any


RECORD = SimpleNamespace(id="a", note="of the record", object="of the record", created_s=1.5, inner=[], free=None)


def test_view_takes_required_fields_from_its_record() -> None:
    """A field with a default keeps it, whatever the record has; a given value comes first."""
    assert dump_view(fill_view(OuterView, RECORD)) == {
        "id": "a",
        "object": "outer",
        "created_at": 1.5,
        "inner": [],
        "free": None,
    }
    assert fill_view(OuterView, RECORD, id="b", note="given") == OuterView(
        id="b", note="given", created_s=1.5, inner=[], free=None
    )


def test_record_without_a_required_field_is_refused() -> None:
    with pytest.raises(AttributeError, match="created_s"):
        fill_view(OuterView, SimpleNamespace(id="a"))


def test_dumped_view_keeps_the_order_of_its_fields() -> None:
    """With the fields that were left out until now at their place, and views inside views as objects."""
    view = fill_view(OuterView, RECORD, note="given", inner=[InnerView("x")])
    assert orjson.dumps(dump_view(view)) == (
        b'{"note":"given","id":"a","object":"outer","created_at":1.5,"inner":[{"word":"x"}],"free":null}'
    )


def test_dumped_view_has_plain_texts() -> None:
    """Also of texts that a variable brought into the configuration: they are shown as what they are."""
    view = fill_view(OuterView, RECORD, id=MaskedText("name"), free={"of": [MaskedText("text"), 1e16, ("a",)]})
    assert orjson.dumps(dump_view(view)["free"]) == b'{"of":["text",1e+16,["a"]]}'
    assert type(dump_view(view)["id"]) is str and dump_view(view)["id"] == "name"


def test_other_classes_are_refused() -> None:
    with pytest.raises(TypeError, match="mappingproxy"):
        dump_view(fill_view(OuterView, RECORD, free=type.__dict__))
