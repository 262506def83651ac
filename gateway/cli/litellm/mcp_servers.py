"""The MCP servers of a LiteLLM configuration, as `mcp.servers`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.approvals.escaping import escape_line
from gateway.cli.litellm.deployments import Secrets, build_variable_name, is_line
from gateway.cli.litellm.destinations import Note, escape_variables, find_variable
from gateway.config.values.scalars import parse_name

_KNOWN: Final = frozenset(
    (
        *("args", "auth_type", "auth_value", "authentication_token", "command", "description", "env", "spec_version"),
        *("static_headers", "transport", "url"),
    )
)
_WORD: Final = r"(?:key|token|secret|passw|credential|auth)"
#: An option of a command whose value is secret, alone or with its value behind `=`; options of variables and headers.
_SECRET_OPTION: Final = re.compile(rf"(?i)-{{1,2}}[a-z0-9-]*{_WORD}[a-z0-9-]*(=|\Z)")
_ENV_OPTIONS: Final = ("-e", "--env")
_HEADER_OPTIONS: Final = ("-H", "--header")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: Values that say themselves that they are secret: a known form, a name before `=` or `:`, a URL with user or query.
_SECRET: Final = re.compile(
    r"(?<![A-Za-z0-9])(sk|pk|ghp|gho|github_pat|glpat|xox[a-z]|hf|npm|AKIA)[-_A-Z0-9a-z]{16,}"
    rf"|(?i:{_WORD}[\w.-]*[\"']?\s*[=:]\s*[\"']?\S|\b(bearer|basic)\s+\S|://[^/\s]*@|://\S*[?#])"
)
#: The header that carries a server's secret, by `auth_type`, and the word before the secret.
_HEADERS: Final[Mapping[str, tuple[str, str]]] = {
    "api_key": ("X-API-Key", ""),
    "authorization": ("Authorization", ""),
    "basic": ("Authorization", "Basic "),
    "bearer_token": ("Authorization", "Bearer "),
    "token": ("Authorization", "token "),
}


def translate_mcp_servers(servers: object, secrets: Secrets, note: Note) -> dict[str, Any]:
    """Return the stdio and streamable HTTP servers by name. No secret is copied."""
    found: dict[str, Any] = {}
    for name, settings in servers.items() if isinstance(servers, dict) else ():
        place = f"mcp_servers.{escape_line(str(name))}"
        if not isinstance(settings, dict):
            note(f"{place}: it is no section, and is left out")
        elif (written := _convert_server(str(name), settings, place, secrets, note)) is not None:
            found[str(name)] = written
    return found


def _convert_server(
    name: str, settings: Mapping[str, Any], place: str, secrets: Secrets, note: Note
) -> dict[str, Any] | None:
    try:
        parse_name(name)
    except ValueError as error:
        note(f"{place}: left out: {error}")
        return None
    written: dict[str, Any] = {}
    if is_line(settings.get("command")):
        written["command"] = escape_variables(settings["command"])
        args = settings.get("args")
        written["args"] = _convert_arguments(args if isinstance(args, list) else [], name, secrets, place, note)
        if env := _convert_values(settings.get("env"), name, secrets, place, note):
            written["env"] = env
    elif settings.get("transport") == "sse":
        note(f"{place}: left out: its transport is sse, that of 2024: a server needs streamable HTTP here")
        return None
    elif is_line(url := settings.get("url")):
        parts = urlsplit(url)
        if find_variable(url) is None and not (parts.query or parts.fragment or "@" in parts.netloc):
            written["url"] = escape_variables(url)
        else:
            written["url"] = _build_reference(url, "url", name, secrets, place, note)
        headers = _convert_values(settings.get("static_headers"), name, secrets, place, note)
        if headers := {**headers, **_convert_authentication(settings, name, secrets, place, note)}:
            written["headers"] = headers
    else:
        note(f"{place}: left out: it has neither a command nor a url")
        return None
    if is_line(settings.get("description")):
        written["description"] = escape_variables(settings["description"])
    if further := sorted(str(one) for one in settings.keys() - _KNOWN):
        note(f"{place}: not translated: {escape_line(', '.join(further))}")
    return written


def _convert_arguments(args: Sequence[object], name: str, secrets: Secrets, place: str, note: Note) -> list[str]:
    """Return the arguments of a command. What an option or its own form calls a secret becomes a reference."""
    found, before = [], ""
    for arg in map(str, args):
        option, equals, value = arg.partition("=")
        is_variable = before in _ENV_OPTIONS and _VARIABLE.match(option)
        if equals and value and (is_variable or option in _HEADER_OPTIONS or _SECRET_OPTION.match(option + equals)):
            found.append(f"{escape_variables(option)}={_build_reference(value, option, name, secrets, place, note)}")
        elif _is_secret(arg, before):
            key = before if before.startswith("-") and not _SECRET.search(before) else "argument"
            found.append(_build_reference(arg, key, name, secrets, place, note))
        else:
            found.append(escape_variables(arg))
        before = arg
    return found


def _is_secret(arg: str, before: str) -> bool:
    """Return whether an argument may be secret, by its own form or the one before it."""
    is_value = before in _HEADER_OPTIONS or (_SECRET_OPTION.match(before) and not arg.startswith("-"))
    return bool(is_value or _SECRET.search(arg))


def _convert_values(values: object, name: str, secrets: Secrets, place: str, note: Note) -> dict[str, str]:
    """Return texts by name, each as a reference to a variable: any of them may be secret."""
    pairs = values.items() if isinstance(values, dict) else ()
    return {str(key): _build_reference(str(value), str(key), name, secrets, place, note) for key, value in pairs}


def _build_reference(value: str, key: str, name: str, secrets: Secrets, place: str, note: Note) -> str:
    reference, is_open = secrets.build_reference(value, wanted=build_variable_name("mcp", name, key))
    if reference is None:
        return escape_variables(value)
    if is_open:
        note(f"{place}: its {escape_line(key)} may be secret, and is not copied: export it as {reference[2:-1]}")
    return reference


def _convert_authentication(
    settings: Mapping[str, Any], name: str, secrets: Secrets, place: str, note: Note
) -> dict[str, str]:
    kind = settings.get("auth_type")
    if kind in (None, "none"):
        return {}
    if kind not in _HEADERS:
        note(f"{place}: its auth_type {escape_line(str(kind))} is not translated: see `oauth` in docs/mcp.md")
        return {}
    header, before = _HEADERS[str(kind)]
    value = settings.get("auth_value", settings.get("authentication_token"))
    if not is_line(value):
        note(f"{place}: it has an auth_type and no auth_value: write its header {header}")
        return {}
    return {header: before + _build_reference(value, "auth_value", name, secrets, place, note)}
