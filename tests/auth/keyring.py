"""A gateway whose keys are made at run time, with one configured key for everything, and the words to ask it."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from functional.through import HOSTS, NO_WORKFLOWS
from gateways import key

from gateway.aio.clock import SystemClock
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream

ROOT = "gw-root-2c81"
EVERYTHING = ("passthrough", "context", "tools", "approve", "admin", "metrics")
START_S = 4_000_000_000.0


class Ahead(SystemClock):
    """A clock whose time of day a test sets."""

    def __init__(self, now_s: float = START_S) -> None:
        self.now_s = now_s

    def time(self) -> float:
        return self.now_s


@dataclass
class Keyring:
    """The keys of a gateway, with the store and the clock behind them."""

    gateway: LocalGateway
    upstream: FakeUpstream
    session: aiohttp.ClientSession
    clock: Ahead
    config: Mapping[str, object]

    async def ask(
        self, method: str, path: str, body: object = None, *, by: str = ROOT, **headers: str
    ) -> tuple[int, Any]:
        sent = {"X-Gateway-Key": by, **headers}
        async with self.session.request(method, path, json=body, headers=sent) as response:
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else {}

    async def made(self, name: str = "ci", *scopes: str, by: str = ROOT, **terms: object) -> Any:
        """Make a key and return the answer."""
        body = {"name": name, "scopes": scopes or ["passthrough", "context"], **terms}
        status, made = await self.ask("POST", "/context/keys", body, by=by)
        assert status == 201, made
        return made

    async def refused(self, method: str, path: str, body: object = None, *, by: str = ROOT) -> tuple[int, str, str]:
        status, told = await self.ask(method, path, body, by=by)
        assert status >= 400, told
        return status, told["error"]["code"], told["error"]["param"]

    async def opens(self, text: str, path: str = "/v1/x") -> int:
        """Return the status of a request with this key."""
        return (await self.ask("GET", path, by=text))[0]

    async def audited(self) -> list[tuple[str, ...]]:
        lines = (await self.ask("GET", "/context/audit"))[1]["data"]
        return [tuple(line[name] for name in ("event", "caller", "by", "via")) for line in lines]


@asynccontextmanager
async def keyring(
    store: Path | None = None, *, keys: object = None, root: Mapping[str, object] | None = None, **sections: object
) -> AsyncIterator[Keyring]:
    """`root` is added to the entry of the configured key."""
    clock = Ahead()
    async with FakeUpstream(serve(build_answer(200, b'"fine"'))) as upstream:
        config: dict[str, object] = {
            "upstreams": [{"name": "up", "base_url": upstream.base_url}],
            "keys": [{**key(ROOT, *EVERYTHING), "name": "root", "tenant": "acme", **(root or {})}]
            if keys is None
            else keys,
            "runtime_keys": {"enabled": True},
            "allowed_hosts": HOSTS,
            "workflows": NO_WORKFLOWS,
            **sections,
        }
        if store is not None:
            config["store"] = f"sqlite:///{store}"
        async with LocalGateway(config, clock=clock) as gateway, aiohttp.ClientSession(gateway.base_url) as session:
            yield Keyring(gateway, upstream, session, clock, config)
