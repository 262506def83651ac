"""The SDK is there only where clients are served."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_server_without_mcp_clients_does_not_import_the_sdk() -> None:
    """Nor what that needs."""
    code = "import sys, gateway.server.app, gateway.mcp_server.lazy_endpoint; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"mcp", "mcp_types", "anyio", "starlette"} & set(done.stdout.split())
