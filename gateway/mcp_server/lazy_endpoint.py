"""The way to the endpoint for MCP clients: it is built, and the SDK imported, only where `mcp.serve` is configured."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gateway.config import ConfigError, Problem
from gateway.mcp.sdk_import import IMPORTING, MISSING_SDK
from gateway.mcp_server.needs import DoorNeeds

if TYPE_CHECKING:
    from gateway.mcp_server.endpoint import McpEndpoint

#: The secret of the store that seals what clients carry from an answer to their next request.
SECRET: Final = "mcp"  # noqa: S105 - its name


async def open_endpoint(needs: DoorNeeds) -> "McpEndpoint":
    """Build the endpoint and let it accept requests. Raises ConfigError where the SDK is missing, and StoreError."""
    try:
        build = await asyncio.to_thread(_import_builder)
    except ImportError:
        raise ConfigError((Problem("configuration", "mcp.serve", MISSING_SDK),)) from None
    door = build(needs, await needs.store.get_or_create_secret(SECRET))
    await door.start()
    return door


def _import_builder() -> "Callable[[DoorNeeds, bytes], McpEndpoint]":
    # Imported here because a gateway that serves no MCP clients needs neither the SDK nor what that needs.
    with IMPORTING:
        from gateway.mcp_server.assembly import build_endpoint

    return build_endpoint
