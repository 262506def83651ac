"""The paths that dialects answer."""

import subprocess
import sys

from gateway.dialects.registry import COLLECTIONS, ENDPOINTS, STATELESS, build_paths


def test_dialect_package_name_maps_to_its_endpoint() -> None:
    """By the name of its folder."""
    assert ENDPOINTS["chat"] == "chat/completions"


def test_a_dialect_with_collections_is_stateful() -> None:
    """Its requests may go on from what is in them."""
    assert "chat" in STATELESS and "responses" not in STATELESS
    assert {"responses", "conversations"} <= {*COLLECTIONS}


def test_dialect_endpoint_has_paths_for_both_lanes_and_versions() -> None:
    """With and without the version, in the context lane and by a header."""
    assert build_paths("x/y") == ("/context/v1/x/y", "/context/x/y", "/v1/x/y", "/x/y")


def test_registry_paths_are_known_without_loading_dialects() -> None:
    """The passthrough lane reads them, and loads no dialect."""
    code = "import sys, gateway.dialects.registry; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"gateway.dialects.chat"} == {module for module in loaded if module.startswith("gateway.dialects.chat")}
    assert "orjson" not in loaded
