"""The endpoint for MCP clients is described without its SDK: only `open_endpoint` imports that."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_endpoint_needs_are_importable_without_the_mcp_sdk() -> None:
    code = "import sys, gateway.mcp_server.needs as needs; print(needs.DoorNeeds.__name__, *sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    name, *modules = done.stdout.split()
    assert name == "DoorNeeds" and not {"mcp", "mcp_types", "anyio"} & set(modules)
