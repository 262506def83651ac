"""Stored expressions, as PostgreSQL 15 writes them: what they name."""

from gateway.plugins.tools.execute_sql.postgres_trees import parse_trees

#: `small(b) AND small(1)`, shortened to what is read.
CALL_OF_A_COLUMN = (
    "{FUNCEXPR :funcid 16401 :funcresulttype 16 :args ({VAR :varno 1 :vartype 23 :location 1}) :location 0}"
)
CALL_OF_A_CONSTANT = (
    "{FUNCEXPR :funcid 16402 :funcresulttype 16 :args ({CONST :consttype 25 :constvalue 4 [ 1 0 0 0 ]}) :location 0}"
)
BOTH = f"{{BOOLEXPR :boolop and :args ({CALL_OF_A_COLUMN} {CALL_OF_A_CONSTANT}) :location 9}}"
COMPARED = "{ROWCOMPARE :rctype 1 :opnos (o 97 16500) :opfamilies (o 1976 1994)}"
SORTED = "{SORTGROUPCLAUSE :tleSortGroupRef 1 :eqop 16501 :sortop 16502 :nulls_first false}"
CAST = "{COERCETODOMAIN :arg {VAR :vartype 16600} :resulttype 16601 :resulttypmod -1}"
COLUMNS = "{RTE :alias <> :relid 16700 :funccoltypes (o 23 16602)}"


def test_parse_trees_finds_functions_operators_relations_and_types() -> None:
    """By number; the type that a column has is none that a value is turned into."""
    found = parse_trees(" ".join((BOTH, COMPARED, SORTED, CAST, COLUMNS)))
    assert found.functions == [16401, 16402]
    assert {16500, 16501, 16502} <= set(found.operators)
    assert found.relations == [16700]
    assert {16601, 16602} <= found.types and 16600 not in found.types


def test_parse_trees_finds_extension_sampling_and_json_returning_types() -> None:
    """PostgreSQL 17 writes RETURNING with a word of its own. The server's own ways to take a sample do not count."""
    found = parse_trees("{TABLESAMPLECLAUSE :tsmhandler 16403} {TABLESAMPLECLAUSE :tsmhandler 3314}")
    assert found.functions == [16403]
    assert parse_trees("{JSONRETURNING :format <> :typid 16603 :typmod 7}").types == {16603}
