"""The settings in force as JSON that an operator may see: everything that may be a secret is `***`.

1. A value of a type that is not known here is masked.
2. The settings of a plugin of the gateway's own are shown by its model, in which secrets have their type. Of all other
   plugins, texts are masked: any of them may be a secret.
"""

from collections.abc import Mapping
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from gateway.config.schema.approvals import AssessorUse
from gateway.config.schema.context import StageUse
from gateway.config.schema.keys import KeySettings
from gateway.config.schema.settings import Settings
from gateway.config.schema.tools import PluginTool, ToolsSettings
from gateway.config.values.addresses import Address
from gateway.config.values.secret import MASK, MaskedText, mask
from gateway.contracts.plugin import PluginKind
from gateway.contracts.storage.store import Json
from gateway.contracts.times import format_time
from gateway.plugins import list_built_in_plugins, load_built_in_plugin

_USES: Final[Mapping[type[BaseModel], PluginKind]] = {StageUse: "stages", AssessorUse: "assessors"}
#: A hash of a key that a person chose can be guessed.
_MASKED: Final = frozenset(((KeySettings, "sha256"),))


def redact_settings(settings: Settings) -> Json:
    """Return all settings, with defaults, as JSON in which every possible secret is masked."""
    return _redact_section(settings)


def _redact_value(value: object) -> object:
    """Return a value as JSON, with masked texts in place of secrets and unknown types."""
    match value:
        case None | bool() | int() | float():
            return value
        case MaskedText():
            return MASK
        case str():
            return value
        case Address() | Path() | IPv4Network() | IPv6Network():
            return str(value)
        case datetime():
            return format_time(value)
        case ToolsSettings():
            return {name: _redact_tool(name, tool) for name, tool in value.all.items()}
        case BaseModel():
            return _redact_section(value)
        case Mapping():
            return {_redact_key(key): _redact_value(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_redact_value(inner) for inner in value]
    return MASK


def _redact_section(section: BaseModel) -> Json:
    """Return a section as JSON; secrets and unknown plugin options are masked."""
    kind, options = _USES.get(type(section)), getattr(section, "with_", None)
    shown: Json = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if (type(section), name) in _MASKED:
            shown[name] = MASK
        elif name == "with_":
            shown["with"] = (
                MASK if kind is None else _redact_plugin_options(kind, getattr(section, "use", ""), options or {})
            )
        else:
            shown[field.alias or name] = _redact_value(value)
    return shown


def _redact_tool(name: str, tool: BaseModel) -> Json:
    if not isinstance(tool, PluginTool):
        return _redact_section(tool)
    return {**_redact_section(tool), "with": _redact_plugin_options("tools", tool.use or name, tool.with_)}


def _redact_plugin_options(kind: PluginKind, name: str, options: Mapping[str, object]) -> object:
    """Return the options of a plugin as JSON, masked unless its settings class makes them known."""
    if name in list_built_in_plugins(kind):
        try:
            typed = load_built_in_plugin(kind, name).config.model_validate(mask(options))
        except ValidationError:
            return _mask_texts(options)
        written = _redact_section(typed)
        return {key: value for key, value in written.items() if key in options}
    return _mask_texts(options)


def _redact_key(key: object) -> str:
    return MASK if isinstance(key, MaskedText) else str(key)


def _mask_texts(value: object) -> object:
    """Return free-form content with every text masked."""
    if isinstance(value, Mapping):
        return {_redact_key(key): _mask_texts(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_mask_texts(inner) for inner in value]
    return value if value is None or isinstance(value, bool | int | float) else MASK
