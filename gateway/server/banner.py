"""The text that a gateway prints at its start: addresses for clients, tools and trust settings."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from gateway import __version__
from gateway.config import LoadedConfig, Settings
from gateway.registry.loader import PluginProblem
from gateway.registry.stores import get_store_address

#: By `risk.trust_llm`: whose word on the risk of a call counts.
TRUST: Final[Mapping[str, str]] = {
    "always": "A call that the model itself calls low in risk runs without asking. "
    "`risk: {trust_llm: never}` ends that.",
    "until_tainted": "A call that the model itself calls low in risk runs without asking, until the run has read what "
    "third parties wrote. `risk: {trust_llm: never}` ends that.",
    "never": "What the model itself says of the risk of a call lets none run.",
}


def iterate_banner_lines(loaded: LoadedConfig, *, url: str, admin_url: str) -> Iterator[str]:
    """Yield the lines. `url` and `admin_url` are the listeners' URLs, without a path; they may be the same."""
    settings = loaded.settings
    upstreams = ", ".join(f"{upstream.name} ({upstream.address})" for upstream in settings.upstreams)
    yield f"Twolane {__version__} is ready."
    yield f"  base URL    {url}/v1"
    yield f"  context     {url}/context/v1"
    if settings.console.enabled:
        yield f"  console     {settings.console_url or admin_url + '/console'}"
    yield f"  upstreams   {upstreams or 'none configured: the built-in demo model answers (no key, no network)'}"
    yield f"  config      {'none: every key has its default' if loaded.file is None else loaded.file.absolute()}"
    yield f"  tools       {', '.join(list_tool_names(settings)) or 'none'}"
    yield f"  trust       {TRUST[settings.risk.trust_llm]}"
    yield f"  store       {store_name(settings)}"
    yield f"  metrics     {admin_url}/metrics"
    if settings.tracing.url is not None:
        yield f"  traces      {settings.tracing.url}"
    yield f"  stop        Ctrl-C (process {os.getpid()})"


def list_tool_names(settings: Settings) -> list[str]:
    """Return the names of the enabled tools, and of the MCP servers, which a gateway does not wait for."""
    tools = [*settings.tools.built_in, *settings.tools.plugins]
    return [*tools, *(f"{name} (MCP, starting)" for name, server in settings.mcp.servers.items() if server.enabled)]


def store_name(settings: Settings) -> str:
    """Return the store's address, as its plugin shows it: other URLs are masked because they may hold a password."""
    try:
        return get_store_address(settings, folder=Path()).redacted_url
    except PluginProblem:
        return f"{settings.store.reveal().partition('://')[0]}://***"
