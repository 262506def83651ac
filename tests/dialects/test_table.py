"""The dialects that the gateway serves."""

from gateway.dialects.endpoints import ENDPOINTS, paths_of
from gateway.dialects.table import DIALECTS, ERRORS


def test_every_package_has_a_dialect() -> None:
    """It answers the endpoint of its package, and writes the errors of its paths."""
    assert [dialect.endpoint for dialect in DIALECTS] == [ENDPOINTS[name] for name in sorted(ENDPOINTS)]
    assert {*ERRORS} == {path for dialect in DIALECTS for path in paths_of(dialect.endpoint)}
