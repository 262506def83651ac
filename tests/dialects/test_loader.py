"""The dialects that the gateway serves."""

import subprocess
import sys

from gateway.dialects.loader import ERRORS, load_all_dialects, load_dialect
from gateway.dialects.registry import ENDPOINTS, build_paths


def test_every_package_has_a_dialect() -> None:
    """It answers the endpoint of its package, and writes the errors of its paths."""
    assert {name: load_dialect(name).endpoint for name in ENDPOINTS} == ENDPOINTS
    assert {dialect.endpoint for dialect in load_all_dialects()} == {*ENDPOINTS.values()}
    assert {*ERRORS} == {path for dialect in load_all_dialects() for path in build_paths(dialect.endpoint)}


def test_loader_import_does_not_import_any_dialect() -> None:
    """The table by itself loads none, since it knows how each writes its errors."""
    code = "import sys, gateway.dialects.loader; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {f"gateway.dialects.{name}.dialect" for name in ENDPOINTS} & {*loaded}
