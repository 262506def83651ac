"""`gateway check-config --replicas N`: what so many gateways with one configuration need of their store and share."""

from collections.abc import Iterator

from gateway.cli.commands import CommandError
from gateway.config import LoadedConfig, Settings
from gateway.config.values.addresses import Address
from gateway.contracts.storage.store import ServerAddress, StoreError
from gateway.features.limits.service_sharing import shares_limits
from gateway.registry.stores import get_store_address

#: The limits that gateways count in their own memory, unless they share them.
_COUNTED_ALONE = ("requests_per_minute", "tokens_per_minute", "concurrent")


def describe_replicas(loaded: LoadedConfig, replicas: int) -> Iterator[str]:
    """Yield what the gateways need of the store and what they share. Raises CommandError if the store has no room."""
    settings = loaded.settings
    address = get_store_address(settings, folder=loaded.folder)
    if not isinstance(address, ServerAddress):
        raise CommandError(
            f"store: {address.redacted_url} names no database server: gateways on several machines need one, such as "
            "postgresql://USER@HOST/DATABASE"
        )
    needed = replicas * settings.workers * address.connections
    product = f"{replicas} gateways x {settings.workers} workers x {address.connections} = {needed}"
    try:
        limit = address.read_state().connection_limit
    except StoreError as error:
        yield f"  connections {product}; the limit of the server is not known: {error}"
    else:
        if needed > limit:
            raise CommandError(
                f"store: {product} connections, and the server has {limit}: lower `pool` in the URL of the store, or "
                "raise max_connections of the server"
            )
        yield f"  connections {product}, of {limit} that the server has{_advise(needed + needed // replicas, limit)}"
    shares = shares_limits(settings)
    limits = "limits and budgets" if shares else "budgets"
    if settings.limits.valkey is not None:
        limits += " (in Valkey)"
    once = [name for name, server in settings.mcp.servers.items() if server.enabled and server.run == "one"]
    further = [
        *(["MCP sessions"] if settings.mcp.serve else []),
        *([f"MCP servers ({', '.join(once)})"] if once else []),
    ]
    yield f"  shared      {', '.join(['runs, approvals, responses, prompts, memories, keys, usage', limits, *further])}"
    if further:
        yield f"  replicas    {_describe_port(settings)}"
    yield f"  apart       {', '.join(_list_apart(settings, replicas, shares=shares))}"


def _describe_port(settings: Settings) -> str:
    """Return where the gateways reach each other, for sessions and servers that one of them has."""
    listen = settings.replicas.listen or Address(settings.listen.host, 0)
    port = str(listen.port) if listen.port else "any free port"
    if listen.is_loopback:
        return f"{listen.host}, {port}: other machines cannot reach it, so set `replicas.listen`"
    return f"{settings.replicas.address or listen.host}, {port}: only gateways need to reach it"


def _advise(while_replaced: int, limit: int) -> str:
    """Return a remark if the connections do not last while one gateway is replaced by a new one."""
    return "" if while_replaced <= limit else f"; {while_replaced} are needed while one is replaced by a new one"


def _list_apart(settings: Settings, replicas: int, *, shares: bool) -> Iterator[str]:
    """Yield the parts of the configuration that each gateway has for itself."""
    if not shares and (names := [name for name in _COUNTED_ALONE if _has_limit(settings, name)]):
        yield f"{', '.join(names)} ({replicas} times the limit in all)"
    programs = {name: server.run for name, server in settings.mcp.servers.items() if server.enabled and server.command}
    if for_each := [name for name, run in programs.items() if run == "each"]:
        yield f"MCP servers that it starts ({', '.join(for_each)})"
    yield "caches"
    yield "what it knows of upstreams (breakers, health)"


def _has_limit(settings: Settings, name: str) -> bool:
    """Return whether a key, a tenant, a model or an upstream has this limit."""
    sections = [
        *(key.limits for key in settings.keys),
        *settings.limits.tenants.values(),
        *settings.limits.models.values(),
        *(upstream.limits for upstream in settings.upstreams),
    ]
    return any(section is not None and getattr(section, name) is not None for section in sections)
