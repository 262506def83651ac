"""The program that the conformance suite runs as the client under test: `... SERVER_URL`, the rest by environment.

It does what a gateway does with a server, by the gateway's own code: connects, lists the tools and calls them.
"""

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Final, cast

import httpx2
from mcp.client.auth.utils import (
    build_protected_resource_metadata_discovery_urls,
    extract_resource_metadata_from_www_auth,
)

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Clock, Counters, Host
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall
from gateway.mcp.service import PLUGIN

EXCHANGE: Final = Exchange(id="run_1", body={}, caller=Caller("local", "default", frozenset()), chain="main")
SERVICE: Final = "suite"

#: An argument of each type, for tools of which the suite does not say how they are called.
_SAMPLES: Final[dict[str, object]] = {
    "string": "a",
    "number": 1.5,
    "integer": 2,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


class _Uncounted:
    """Counters that drop all figures."""

    def count(self, name: str, **labels: str) -> None: ...

    def observe(self, name: str, value: float, **labels: str) -> None: ...


@dataclass(frozen=True)
class _Host:
    """As much of one as a server of MCP needs."""

    counters: Counters = field(default_factory=_Uncounted)
    clock: Clock = time


async def run(url: str, scenario: str, context: Json) -> None:
    settings: Json = {"name": SERVICE, "url": url}
    if scenario.startswith("auth/"):
        settings["oauth"] = await credentials(url, context)
    service = PLUGIN.build(PLUGIN.config.model_validate(settings), cast(Host, _Host()))
    settled = asyncio.Event()
    service.watch(lambda: settled.set() if service.get_condition().state in ("running", "error") else None)
    service.start()
    try:
        await settled.wait()
        if not service.get_service().running:
            sys.exit(service.get_condition().error)
        schemas = {tool.name: tool.parameters for tool in await service.list_tools()}
        for name, arguments in calls(schemas, context):
            call = ToolCall(id="call", tool=f"{SERVICE}.{name}", arguments=arguments)
            print(await service.call(call, EXCHANGE))
    finally:
        await service.stop()


async def credentials(url: str, context: Json) -> Json:
    return {
        "issuer": context.get("issuer") or await issuer_of(url),
        "client_id": context.get("client_id", "conformance"),
        "client_secret": context.get("client_secret", "conformance-secret"),
    }


async def issuer_of(url: str) -> str:
    """What the operator of a gateway writes down: the suite does not tell it, so the server's metadata does."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        refusal = await http.post(url, json={})
        advertised = extract_resource_metadata_from_www_auth(refusal)
        for address in build_protected_resource_metadata_discovery_urls(advertised, url):
            answer = await http.get(address)
            if answer.is_success:
                issuer: str = answer.json()["authorization_servers"][0]
                return issuer
    raise LookupError(f"{url!r} tells no authorization server")


def calls(schemas: dict[str, Json], context: Json) -> list[tuple[str, Json]]:
    """The suite's calls where it names them; otherwise each tool once."""
    if "toolCalls" in context:
        return [(call["name"], call["arguments"]) for call in context["toolCalls"]]
    if "json_schema_echo" in schemas:  # it is to be told how we see its neighbour
        return [("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})]
    return [(name, sample(schema)) for name, schema in schemas.items()]


def sample(schema: Json) -> Json:
    """Arguments that a model might give: the required ones."""
    properties = schema.get("properties", {})
    return {name: _SAMPLES[properties[name].get("type", "string")] for name in schema.get("required", ())}


if __name__ == "__main__":
    asyncio.run(
        run(
            sys.argv[1],
            os.environ["MCP_CONFORMANCE_SCENARIO"],
            json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
        )
    )
