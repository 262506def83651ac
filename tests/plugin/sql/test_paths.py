"""Paths into JSON do not compare many values with many others unasked: PostgreSQL could not be stopped."""

import pytest

from gateway.plugin.sql.statement import judge

FEW = ("'$.a[*] ? (@ > 1)'", "'$ ? (@.a == \"x\" && 2 < 3)'", "'$.** ? (@ like_regex \"^a\")'", "'strict $.a'")
MANY = (
    "'$ ? (@.a[*] == @.b[*])'",
    "'$.a == $.b'",
    "'$ ? (@.a <= /* x */ - (@.b))'",
    "'$ ? (@.a[*] <> $x)'",
    "'$ ? (@.a ='\n'= @.b)'",
    "$$ $.a > $.b $$",
    r"E'$.a \x3d\x3d $.b'",
)
USES = (
    "jsonb_path_exists(j, {})",
    "jsonb_path_query(j, {}, v)",
    "j @? {}",
    "j @@ {}",
    "json_value(j, {})",
    "j @? {}::jsonpath",
    "j @? CAST({} AS jsonpath)",
    "j @? jsonpath {}",
)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("path", FEW)
def test_json_path_comparison_with_literals_is_not_doubted(use: str, path: str) -> None:
    assert judge(f"SELECT {use.format(path)} FROM t", dialect="postgresql").doubt is None


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("path", MANY)
def test_comparison_of_two_json_paths_needs_approval(use: str, path: str) -> None:
    """Many values may stand at the end of either."""
    doubt = judge(f"SELECT {use.format(path)} FROM t", dialect="postgresql").doubt
    assert doubt is not None


@pytest.mark.parametrize(
    "expression",
    [
        *("j @? replace(b, 'a', 'c')::jsonpath", "j @? CAST('$.a' || b AS jsonpath)", "j @? '$.a'::text::jsonpath"),
        *('j @? b::"jsonpath"', "j @? any ('{$.a}'::jsonpath[])", "j @? any ('{$.a}'::_jsonpath)"),
        *("json_value(j, b)", "json_exists(j, '$.a' || b)", "json_query(j, lower('$.a'))"),
    ],
)
def test_computed_json_path_is_doubted(expression: str) -> None:
    """Its text is not known before the statement runs."""
    doubt = judge(f"SELECT {expression} FROM t", dialect="postgresql").doubt
    assert doubt is not None and doubt[0] == "product"


@pytest.mark.parametrize("sql", ["SELECT '@.a == @.b' FROM t", "SELECT v @@ to_tsquery('a') FROM t WHERE b = 'x'"])
def test_non_path_text_is_not_parsed_as_a_json_path(sql: str) -> None:
    assert judge(sql, dialect="postgresql").doubt is None
