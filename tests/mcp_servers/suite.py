"""The protocol's conformance suite: how it is started, its scenarios, and the revisions that it knows."""

import re
import subprocess
from typing import Final, Literal

from tests.mcp_servers.servers import NODE, ROOT

_PROGRAM: Final = NODE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
SUITE: Final = ("node", f"--import={NODE / 'older_node.mjs'}", str(_PROGRAM))

HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
BOTH: Final = (HANDSHAKE, MODERN)


def scenarios_of(side: Literal["client", "server"]) -> list[str]:
    """The names of all scenarios of the suite for this side."""
    listing = subprocess.run((*SUITE, "list", f"--{side}"), cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  - (\S+) \[", listing, re.MULTILINE)
