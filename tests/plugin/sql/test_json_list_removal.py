"""A list of any length is not taken from JSON unasked: PostgreSQL compares each key with each name, at one go."""

import pytest

from gateway.plugin.sql.statement import judge


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT data - (SELECT array_agg(k) FROM keys) FROM t",
        "SELECT data - string_to_array(b, ',') FROM t WHERE a = 1",
        "SELECT data - ARRAY(SELECT k FROM keys) FROM t",
        "SELECT data - b::text[] FROM t",
        "SELECT data - b::_text FROM t",
        'SELECT data - CAST(b AS pg_catalog."_varchar") FROM t',
        "SELECT data - k FROM t, jsonb_to_record(c) AS r(k _text)",
        "SELECT data - CASE WHEN a = 1 AND a > 0 THEN array_agg(b) END FROM t GROUP BY data, a",
        "SELECT data - key FROM t, (SELECT array_agg(b) AS key FROM keys) s",
        "SELECT data - s.key FROM t, (SELECT array_agg(b) key FROM keys) s",
        "SELECT data - coalesce(array_agg(b), '{}') FROM t GROUP BY data",
        "SELECT data - k FROM t, (SELECT array_agg(b) AS k FROM keys) s",
        "SELECT data - s.k2 FROM t, (SELECT k AS k2 FROM (SELECT array_agg(b) k FROM keys) r) s",
        "WITH s(k) AS (SELECT array_agg(b) FROM keys) SELECT data - s.k FROM t, s",
        "SELECT data - m FROM t, regexp_matches(b, 'x', 'g') m",
        "SELECT data - k FROM t, (SELECT '{}' AS k UNION ALL SELECT array_agg(b) FROM keys) s",
        "SELECT data - s.coalesce FROM t, (SELECT coalesce(array_agg(b), '{}') FROM keys) s",
    ],
)
def test_json_removal_by_a_computed_list_is_doubted(sql: str) -> None:
    """However it gets its name."""
    doubt = judge(sql, dialect="postgresql").doubt
    assert doubt is not None and doubt[:1] == ("product",) and "'-'" in doubt[1]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a - b FROM t",
        "SELECT data - 'key' - ARRAY['a', 'b'], data - '{a,b}'::text[] - '{c}'::_text FROM t",
        "SELECT data - $1, data -> 'a', data #- '{a}' FROM t WHERE tags = ARRAY['x']",
        "SELECT max(a) - min(a) AS spread, array_agg(b ORDER BY a) AS names FROM t GROUP BY c",
        "SELECT high - low AS spread, names FROM (SELECT max(a) high, min(a) low, array_agg(b) names FROM t) s",
        "SELECT a - b FROM t WHERE a - b > 3 AND c = ANY(ARRAY[a, b])",
        "SELECT now() - interval '1 day', string_to_array(b, ',') FROM t",
        "SELECT -a, a - 1, array_length(tags, 1) - 1 FROM t",
    ],
)
def test_numeric_subtraction_needs_no_approval(sql: str) -> None:
    """Nor does a list that is short."""
    assert judge(sql, dialect="postgresql").doubt is None
