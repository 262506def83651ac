"""The description of a configuration, for the person who wrote it: the text of `gateway check-config`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gateway.config import LoadedConfig, Settings
from gateway.config.schema.context import StageUse
from gateway.config.values.secret import mask
from gateway.registry.loader import find_plugin
from gateway.server.banner import TRUST, store_name
from gateway.workflows.folder import load_offered_workflows

_LONGEST_OPTIONS = 100


def describe_config(loaded: LoadedConfig, *, warnings: Sequence[str] = ()) -> Iterator[str]:
    """Yield one line after the other; `warnings` come from its rehearsal."""
    settings = loaded.settings
    upstreams = ", ".join(f"{u.name} ({u.address})" for u in settings.upstreams) or "the built-in demo model"
    yield f"{loaded.file or 'defaults, no file'}: ok"
    yield f"  listen      {settings.listen}, workers {settings.workers}"
    yield f"  upstreams   {upstreams}"
    yield f"  keys        {_list_key_names(settings)}"
    yield f"  tools       {', '.join(_describe_tools(settings)) or 'none'}"
    for warning in warnings:
        yield f"  warning     {warning}"
    yield f"  trust       {TRUST[settings.risk.trust_llm]}"
    yield f"  services    {', '.join(_describe_services(settings)) or 'none'}"
    yield f"  workflows   {', '.join(load_offered_workflows(settings).workflows) or 'none'}"
    yield f"  store       {store_name(settings)}"
    for name, uses in settings.chains.items():
        yield f"  chain       {name}{' (default)' if name == settings.context.chain else ''}"
        for depth, use in enumerate(uses):
            yield f"  {' ' * 12}{'  ' * depth}{_describe_stage(use, plugins=settings.plugins.folder)}"
        yield f"  {' ' * 12}{'  ' * len(uses)}model"


def _describe_tools(settings: Settings) -> Iterator[str]:
    for name, tool in {**settings.tools.built_in, **settings.tools.plugins}.items():
        yield f"{name}{' (asks before every call)' if tool.requires_approval else ''}"


def _describe_services(settings: Settings) -> Iterator[str]:
    notes = {"definitions": "", "names": " (pinned by names)", "none": " (not pinned)"}
    for name, server in settings.mcp.servers.items():
        yield f"{name}{notes[server.pin]}"


def _describe_stage(use: StageUse, *, plugins: Path) -> str:
    options = _get_changed_options(use, plugins=plugins)
    text = ", ".join(f"{key}: {json.dumps(mask(value), ensure_ascii=False)}" for key, value in options.items())
    if len(text) > _LONGEST_OPTIONS:
        text = f"{text[:_LONGEST_OPTIONS]}..."
    return f"{use.use}{f' {{{text}}}' if text else ''}{' (on_error: skip)' if use.on_error == 'skip' else ''}"


def _get_changed_options(use: StageUse, *, plugins: Path) -> Mapping[str, object]:
    """Return the options that differ from the plugin's defaults."""
    config = find_plugin("stages", use.use, folder=plugins).config
    changed = config.model_validate(dict(use.with_)).model_dump(exclude_defaults=True)
    return {key: value for key, value in use.with_.items() if key in changed or key not in config.model_fields}


def _list_key_names(settings: Settings) -> str:
    """Return the names of the keys that the gateway accepts."""
    names = ", ".join(key.name for key in settings.keys)
    if settings.runtime_keys.enabled:
        return f"{names}, and those of the store" if names else "those of the store (gateway keys create --store)"
    return names or "none: loopback only"
