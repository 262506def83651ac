"""A gateway that serves MCP clients: what the clients of these tests find behind it, and their keys."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.clients.lane import Lane
from tests.clients.person import asking, until_running
from tests.clients.provider import Provider
from tests.clients.worker import ROOT
from tests.mcp_server.conftest import CALM
from tests.mcp_server.serving import keys

#: The keys: of a client, of a client whose user decides, and of somebody who decides elsewhere.
AGENT, BOSS, ANNA = "agent", "boss", "anna"
KEYS: Final = keys(
    agent=["tools", "context", "passthrough"],
    boss=["tools", "context", "passthrough", "approve"],
    anna=["approve", "context", "admin"],
)
#: Tools of the service `here` that run unasked.
UNASKED: Final = ("echo", "add", "image", "progress", "sleep", "cancelled")
#: A wait that no test sees the end of, and one that each sees.
LONG, SHORT = "50s", "1s"


@contextmanager
def serving(
    provider: Provider, folder: Path, *, wait: str, public_url: str | None = "http://localhost:1"
) -> Iterator[Lane]:
    """The gateway of `asking`, with keys, the service `here`, and the endpoint; it holds calls for `wait`."""
    assessor = folder / "plugins" / "assessors" / "calm.py"
    assessor.parent.mkdir(parents=True, mode=0o700)
    assessor.write_text(CALM, encoding="utf-8")
    assessor.chmod(0o600)
    module = {"args": ["-m", "tests.mcp_server.offering"], "cwd": str(ROOT), "start_timeout": 60}
    settings: dict[str, Any] = {
        "upstreams": provider.keyed,
        "keys": KEYS,
        "public_url": public_url,
        "plugins": {"folder": str(folder / "plugins")},
        "risk": {"trust_llm": "never", "assessors": {f"here.{tool}": {"use": "calm"} for tool in UNASKED}},
        "mcp": {"servers": {"here": {"command": sys.executable, **module}}, "serve": {"wait": wait}},
    }
    with asking(provider, folder, key=ANNA, **settings) as lane:
        until_running(lane, "here", patience_s=60)
        yield lane


def url_of(lane: Lane) -> str:
    return f"{lane.root.removesuffix('/context')}/mcp"
