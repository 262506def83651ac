"""Value types: how they are read, written and described."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, ValidationError

from gateway.config.values.value import PathLeaf, ValueType, describe_kind


def _even(value: object) -> int:
    if not isinstance(value, int) or value % 2:
        raise ValueError("expected an even number")
    return value


class _Model(BaseModel):
    even: Annotated[
        int, ValueType(kind="even", parse=_even, write=lambda n: f"<{n}>", json_type="integer", limits=(0, 8))
    ] = 2
    path: Annotated[Path, PathLeaf(kind="path", parse=lambda value, folder: folder / str(value))] = Path("x")
    text: Annotated[str, ValueType(kind="text", parse=str)] = ""


def test_leaf_type_parses_and_serialises_its_value() -> None:
    """`parse` decides what a value is, `write` how JSON shows it; a path begins at the folder of the context."""
    model = _Model.model_validate({"even": 4, "path": "a", "text": 5}, context={"folder": Path("/f")})
    assert (model.even, model.path, model.text) == (4, Path("/f/a"), "5")
    assert model.model_dump_json() == '{"even":"<4>","path":"/f/a","text":"5"}'
    assert _Model.model_validate({"path": "a"}).path == Path("a")


def test_a_value_error_becomes_a_finding() -> None:
    """With the place of the value and the message of the parser."""
    with pytest.raises(ValidationError) as caught:
        _Model.model_validate({"even": 3})
    (finding,) = caught.value.errors()
    assert finding["loc"] == ("even",)
    assert str(finding["ctx"]["error"]) == "expected an even number"


def test_editors_accept_a_reference_in_place_of_a_number() -> None:
    """Types other than text are described as that type or `${VAR}`."""
    properties = _Model.model_json_schema()["properties"]
    assert properties["even"]["anyOf"] == [
        {"type": "integer", "minimum": 0, "maximum": 8},
        {"type": "string", "pattern": r"\$\{"},
    ]
    assert properties["text"]["type"] == properties["path"]["type"] == "string"


def test_value_kinds_are_described_without_their_content() -> None:
    """Never with the content."""
    values: list[object] = [None, True, 1, 1.5, "secret", [], (), {}, object()]
    assert [describe_kind(value) for value in values] == [
        "nothing",
        "true or false",
        "a number",
        "a number",
        "text",
        "a list",
        "a list",
        "a section",
        "something else",
    ]
