"""The dialects that the gateway serves."""

import subprocess
import sys

from gateway.dialects.loader import ERRORS, find_error_style, load_all_dialects, load_dialect
from gateway.dialects.registry import ENDPOINTS, HELPERS, build_paths


def test_every_package_has_a_dialect() -> None:
    """It answers the endpoint of its package, and writes the errors of its paths."""
    assert {name: load_dialect(name).endpoint for name in ENDPOINTS} == ENDPOINTS
    assert {dialect.endpoint for dialect in load_all_dialects()} == {*ENDPOINTS.values()}
    answered = [*ENDPOINTS.values(), *(path for helpers in HELPERS.values() for path in helpers)]
    assert {*ERRORS} == {path for each in answered for path in build_paths(each)}


def test_error_style_is_that_of_the_path_and_what_is_below_it() -> None:
    """Elsewhere that of the client's dialect, if that is known, else OpenAI's."""
    own = ERRORS["/context/v1/messages"]
    assert own.id_header == "request-id"
    assert find_error_style("/context/v1/messages/x") is find_error_style("/context/v1/messages/") is own
    assert find_error_style("/context/v1/models", of="messages") is own
    assert find_error_style("/context/v1/models").id_header is find_error_style("/x").id_header is None


def test_loader_import_does_not_import_any_dialect() -> None:
    """The table by itself loads none, since it knows how each writes its errors."""
    code = "import sys, gateway.dialects.loader; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {f"gateway.dialects.{name}.dialect" for name in ENDPOINTS} & {*loaded}
