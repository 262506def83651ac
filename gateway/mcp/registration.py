"""The settings of a service: checked like the configuration, stored, shown without secrets, given to a plugin.

Settings registered over HTTP do not come from the operator's files. They name no files with secrets, and no relative
folder.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.config.messages import suggest_nearest
from gateway.config.reading.secret_files import COMPANION_SUFFIX
from gateway.config.schema.mcp import McpServer
from gateway.config.schema.section import Section
from gateway.config.values.scalars import parse_label
from gateway.config.values.secret import MASK, Secret
from gateway.contracts.storage.store import Json
from gateway.text.reserved_names import ServiceNames

#: Where secrets stand, by their names, besides the URL.
_SECRETS: Final = ("env", "headers", "oauth")
#: Where names of files with secrets stand in the configuration.
_COMPANIONS: Final = ((), ("headers",), ("oauth",))
#: What is not the plugin's business.
_OURS: Final = frozenset(("enabled",))
_NAME_CHARS = 100


class SettingsError(ValueError):
    """The error of settings that no service can have; `param` names the field, and no text repeats a value."""

    def __init__(self, message: str, *, param: str | None, unknown: bool = False) -> None:
        super().__init__(message)
        self.param = None if param is None else param[:_NAME_CHARS]
        self.unknown = unknown


def check_service_name(name: object, *, beside: ServiceNames | None = None) -> str:
    """Return a service name that is valid and distinct from `beside`. Raises SettingsError."""
    try:
        text = parse_label(name)
    except ValueError as error:
        raise SettingsError(f"{error}", param="name") from None
    if (problem := (beside or ServiceNames()).find_problem(text)) is not None:
        raise SettingsError(f"{problem}: choose another name", param="name")
    return text


def parse_settings(settings: Json) -> McpServer:
    """Return the settings as the configuration has them. Raises SettingsError with the first problem."""
    _check_companions(settings)
    try:
        server = McpServer.model_validate(settings)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise _build_settings_error(problem) from None
    if (server.command is None) == (server.url is None):
        raise SettingsError("expected either command or url", param="command")
    if server.cwd is not None and not server.cwd.is_absolute():
        raise SettingsError("expected an absolute path", param="cwd")
    return server


def build_options(server: McpServer) -> dict[str, object]:
    """Return the options for its plugin, in plain values, without absent settings."""
    return {name: value for name, value in _dump_fields(server).items() if name not in _OURS}


def mask_settings(server: McpServer) -> Json:
    """Return the settings without secrets; of a URL only its scheme, host and port."""
    view: Json = server.model_dump(mode="json", exclude_none=True)
    if server.url is not None:
        parts = urlsplit(server.url.reveal())
        view["url"] = f"{parts.scheme}://{parts.netloc}/" + (MASK if parts.path.strip("/") or parts.query else "")
    return view


def restore_stored_secrets(settings: Json, *, kept: Json | None) -> Json:
    """Return `settings` with the stored secrets in place of their masks. Raises SettingsError."""
    before, seen = _read_stored_settings(kept)
    filled = dict(settings)
    url = settings.get("url")
    if isinstance(url, str) and url.endswith(MASK):
        if url != seen.get("url"):
            raise _build_masked_error("url")
        filled["url"] = before["url"]
    for part in _SECRETS:
        given, known = settings.get(part), before.get(part, {})
        if isinstance(given, dict):
            for name in (name for name, value in given.items() if value == MASK and name not in known):
                raise _build_masked_error(f"{part}.{name}")
            filled[part] = {name: known[name] if value == MASK else value for name, value in given.items()}
    return filled


def _read_stored_settings(kept: Json | None) -> tuple[Json, Json]:
    """Return the stored settings and their shown form; both are empty for settings that this version cannot read."""
    try:
        return ({}, {}) if kept is None else (kept, mask_settings(parse_settings(kept)))
    except SettingsError:
        return {}, {}


def _build_masked_error(param: str) -> SettingsError:
    return SettingsError(f"{MASK!r} stands for a value that is kept, and none is: send the value", param=param)


def _check_companions(settings: Json) -> None:
    """Raise SettingsError for a setting that names a file with secrets."""
    for path in _COMPANIONS:
        part: object = settings
        for key in path:
            part = part.get(key) if isinstance(part, dict) else None
        for name in part if isinstance(part, dict) else ():
            if name.endswith(COMPANION_SUFFIX):
                instead = name.removesuffix(COMPANION_SUFFIX)
                raise SettingsError(
                    f"files with secrets are named in the configuration only: send {instead!r}",
                    param=".".join((*path, name)),
                )


def _dump_fields(section: Section) -> dict[str, object]:
    """Return the settings that are present, without names of files whose content is there already."""
    return {
        name: _convert_to_plain(value)
        for name, value in section
        if value is not None and not name.endswith(COMPANION_SUFFIX)
    }


def _convert_to_plain(value: object) -> object:
    """Return a setting as plain JSON values, with secrets in clear text."""
    match value:
        case Path():
            return str(value)
        case Secret():
            return value.reveal()
        case Section():
            return _dump_fields(value)
        case Mapping():
            return {name: _convert_to_plain(inner) for name, inner in value.items()}
        case tuple():
            return [_convert_to_plain(inner) for inner in value]
    return value


def _build_settings_error(problem: ErrorDetails) -> SettingsError:
    """Return pydantic's problem as an error with the path of its field."""
    path = [str(part) for part in problem["loc"] if part != "[key]"]
    param = ".".join(path) or None
    match problem["type"]:
        case "extra_forbidden":
            known = sorted(McpServer.model_fields)
            hint = suggest_nearest(path[-1], known) if len(path) == 1 else ""
            return SettingsError(f"there is no such field{hint}", param=param, unknown=True)
        case "value_error":
            return SettingsError(str(problem["ctx"]["error"]), param=param)
        case "tuple_type":
            return SettingsError("expected a list", param=param)
        case "mapping_type" | "dict_type" | "model_type":
            return SettingsError("expected an object", param=param)
    return SettingsError(problem["msg"][:1].lower() + problem["msg"][1:], param=param)
