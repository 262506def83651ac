"""The import of the SDK."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_client_and_server_imports_run_concurrently() -> None:
    """The gateway is a client of servers and a server of clients, and both begin with the process."""
    code = """
from concurrent.futures import ThreadPoolExecutor
from gateway.mcp.server_supervisor import _load as client
from gateway.mcp_server.lazy_endpoint import _import_builder as server
with ThreadPoolExecutor() as pool:
    list(pool.map(lambda load: load(), (client, server)))
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, "")
