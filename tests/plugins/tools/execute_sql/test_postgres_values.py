"""Values of JSON as the types of PostgreSQL's parameters want them."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pytest

from gateway.plugins.tools.execute_sql.postgres_values import convert_value, find_value_doubt

NUMBER = "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (None, "int4", None),
        (7, "text", "7"),
        (True, "text", "true"),
        ("7", "int8", 7),
        (7.0, "int4", 7),
        (1, "float8", 1.0),
        (0.1, "numeric", Decimal("0.1")),
        ("t", "bool", True),
        (0, "bool", False),
        ("2026-01-02", "date", date(2026, 1, 2)),
        ("03:04", "time", time(3, 4)),
        ("2026-01-02T03:04", "timestamp", datetime(2026, 1, 2, 3, 4)),
        ("2026-01-02T03:04", "timestamptz", datetime(2026, 1, 2, 3, 4, tzinfo=UTC)),
        ("2026-01-02T03:04:05Z", "timestamptz", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (NUMBER, "uuid", UUID(NUMBER)),
        ([1, None], "int4[]", [1, None]),
        ({"a": [1]}, "jsonb", '{"a": [1]}'),
        ('{"a": 1}', "jsonb", '{"a": 1}'),
        ("10.0.0.1", "inet", "10.0.0.1"),
    ],
)
def test_json_value_is_converted_to_the_parameter_type(value: object, kind: str, expected: object) -> None:
    """Exactly, where JSON has no such type."""
    found = convert_value(value, kind)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("x", "int4"),
        (1.5, "int4"),
        (True, "int4"),
        ("x", "numeric"),
        ("soon", "date"),
        (2, "bool"),
        (1, "int4[]"),
        ([1], "text"),
    ],
)
def test_value_that_does_not_match_its_type_raises(value: object, kind: str) -> None:
    """Before anything is sent."""
    with pytest.raises((ValueError, ArithmeticError)):
        convert_value(value, kind)


def test_long_values_with_quadratic_parsing_cost_require_confirmation() -> None:
    """All of them together: one row is computed without a look at the clock."""
    sql = "SELECT plainto_tsquery('english', $1), $2::xml, $3 FROM t"
    assert find_value_doubt(sql, ["a " * 4000, f"<a>{'x' * 4000}</a>", "x" * 100_000]) is None
    for long in (
        ["a " * 9000, "<a/>", ""],
        ["a", f"<a>{'x' * 17_000}</a>", ""],
        ["a " * 5000, f"<a>{'x' * 8000}</a>", ""],
    ):
        doubt = find_value_doubt(sql, long)
        assert doubt is not None and "PostgreSQL cannot interrupt it" in doubt.reason
