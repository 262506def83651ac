"""Checks of single fields: what each kind accepts, and how a refusal names its place."""

import pytest

from gateway.contracts.errors import GatewayError
from gateway.dialects.field_checks import (
    ANYTHING,
    ID,
    LIST,
    NAME,
    OBJECT,
    TEXT,
    TEXTS,
    TRUTH,
    WHOLE,
    Kind,
    build_enum_kind,
    build_number_kind,
    build_short_text_kind,
    build_unsupported_error,
    build_whole_number_kind,
    check_object,
    check_object_fields,
    join_place,
    mark_required,
)


@pytest.mark.parametrize(
    ("kind", "accepted", "refused"),
    [
        (TEXT, ["", "a" * 1_000_000], [1, True, [], {}]),
        (TRUTH, [True, False], [0, 1, "true", []]),
        (OBJECT, [{}], [[], "{}", 1]),
        (LIST, [[], [1]], [{}, "[]"]),
        (TEXTS, [[], ["a"]], [["a", 1], [None], "a"]),
        (WHOLE, [0, -1, 2**63], [1.0, True, "1"]),
        (ANYTHING, [0, "", [], {}], []),
        (ID, ["a", "a" * 64], ["", "a" * 65, 1]),
        (NAME, ["a", "A_b-1", "a" * 64], ["", "a" * 65, "a b", "a.b", "ä", "a\n", 1]),
        (build_short_text_kind(3), ["abc"], ["", "abcd"]),
        (build_enum_kind("a", "b"), ["a", "b"], ["c", "A", "", 1, ["a"]]),
        (build_whole_number_kind(1), [1, 2**62], [0, -1, 1.5, True]),
        (build_whole_number_kind(0, 20), [0, 20], [21, -1]),
        (build_number_kind(0, 2), [0, 1.5, 2], [-0.1, 2.1, 1e300, True, "1"]),
    ],
)
def test_field_kind_accepts_only_its_values(kind: Kind, accepted: list[object], refused: list[object]) -> None:
    """JSON's true and false are no numbers, though Python's are."""
    assert [value for value in accepted if not kind.accepts(value)] == []
    assert [value for value in refused if kind.accepts(value)] == []


def refused(*arguments: object, closed: bool = False) -> tuple[str, str | None, str]:
    with pytest.raises(GatewayError) as caught:
        check_object_fields(*arguments, closed=closed)  # type: ignore[arg-type]
    return caught.value.code, caught.value.param, caught.value.message


def test_a_refusal_names_the_place_and_not_the_value() -> None:
    assert refused("a[0]", {"b": "x" * 999}, {"b": TRUTH}) == (
        "invalid_field",
        "a[0].b",
        "'a[0].b' must be true or false.",
    )


def test_null_field_is_optional_unless_required() -> None:
    check_object_fields("", {"a": None}, {"a": TEXT, "b": TEXT})
    assert refused("", {"a": None}, {"a": mark_required(TEXT)}) == (
        "missing_field",
        "a",
        "'a' is missing: it must be text.",
    )


def test_closed_object_refuses_unknown_fields() -> None:
    """The error is in OpenAI's words, and a name of a megabyte is cut."""
    assert refused("x", {"b": None}, {"a": TEXT}, closed=True) == (
        "unknown_parameter",
        "x.b",
        "Unknown parameter: 'x.b'.",
    )
    _, param, message = refused("", {"b" * 1_000_000: 1}, {}, closed=True)
    assert len(param or "") == 64 and len(message) < 100


def test_check_object_refuses_a_non_object() -> None:
    assert check_object("a", {"b": 1}) == {"b": 1}
    with pytest.raises(GatewayError, match="'a' must be an object"):
        check_object("a", [])


def test_join_place_builds_a_field_path() -> None:
    assert (join_place("", "a"), join_place("a[0]", "b")) == ("a", "a[0].b")


def test_unsupported_field_error_names_a_next_step() -> None:
    error = build_unsupported_error("prompt", "leave it out")
    assert (error.code, error.param) == ("unsupported_parameter", "prompt")
    assert error.message == "'prompt' is not offered in context mode: leave it out."
