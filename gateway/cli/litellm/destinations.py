"""The destination of an entry: the provider and the address that LiteLLM uses. An import sends no prompt elsewhere."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from gateway.approvals.escaping import escape_line
from gateway.cli.litellm.providers import FAMILIES, OTHERS, PROVIDERS, SAME, Provider
from gateway.config.values.addresses import parse_base_url
from gateway.config.values.scalars import parse_text

#: Takes a sentence about something that is not translated, or differs.
Note: TypeAlias = Callable[[str], None]

_ENVIRON: Final = "os.environ/"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_KEEP: Final = "keep LiteLLM in front of it, and name LiteLLM as an upstream (docs/from-litellm.md)"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The rest of an entry's file, and the environment of the import, as far as its destination needs them.

    `variables` are the `environment_variables` of the file, `api_base` and `by_proxy` are `litellm_settings`.
    """

    credentials: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    api_base: object = None
    by_proxy: bool = False


def escape_variables(text: str) -> str:
    """Return a text as gateway.yaml has it, where `${NAME}` would be a variable."""
    return text.replace("$", "$$")


def find_variable(value: str) -> str | None:
    """Return the variable that a value of LiteLLM stands for, or None."""
    name = value.removeprefix(_ENVIRON)
    return name if value.startswith(_ENVIRON) and _VARIABLE.match(name) else None


def find_provider(
    params: Mapping[str, Any], surroundings: Surroundings, place: str, note: Note
) -> tuple[str, str] | None:
    """Return the provider of an entry (a key of PROVIDERS), and its name for the model.

    None: the provider is unknown, or has another API; `note` got the reason.
    """
    kind, model = _find_named_provider(params, surroundings)
    if kind is None:
        note(
            f"{place}: {escape_line(model)} does not name its provider, so the entry is left out: write it as "
            "PROVIDER/MODEL, such as openai/MODEL, or give its api_base"
        )
    elif kind not in PROVIDERS:
        note(f"{place}: the API of {escape_line(kind)} is not that of OpenAI: {_KEEP}")
    elif not model:
        note(f"{place}: it names no model of {escape_line(kind)}")
    else:
        return kind, model
    return None


def _find_named_provider(params: Mapping[str, Any], surroundings: Surroundings) -> tuple[str | None, str]:
    """Return the provider by the rules of LiteLLM: never OpenAI for a name that LiteLLM would not send there."""
    named, model = params.get("custom_llm_provider"), params["model"]
    first, slash, rest = model.partition("/")
    if params.get("use_litellm_proxy") is True or surroundings.by_proxy:
        return "litellm_proxy", rest if first == "litellm_proxy" else model
    if isinstance(named, str) and named:
        return SAME.get(named, named), rest if first == named else model
    if slash and (first in PROVIDERS or first in SAME or first in OTHERS):
        return SAME.get(first, first), rest
    if _find_given_address(params, surroundings) or model == "*":
        return "openai", model
    return next((kind for family, kind in FAMILIES if family.match(model)), None), model


def find_address(
    params: Mapping[str, Any], kind: str, surroundings: Surroundings, place: str, note: Note
) -> str | None:
    """Return the address of a server, or None: there is none, or it is none. No credential in it is copied."""
    provider = PROVIDERS[kind]
    given = _find_given_address(params, surroundings)
    if not given:
        given = _find_address_by_variable(provider, surroundings, place, note)
    if not given:
        if provider.base_url is None:
            note(f"{place}: {escape_line(kind)} needs an api_base")
            return None
        return provider.base_url + provider.below
    variable = find_variable(given) if isinstance(given, str) else None
    if variable is not None:
        return _append_provider_path(f"${{{variable}}}", provider)
    try:
        address = _strip_credentials(parse_text(given).strip(), place, note)
        return escape_variables(parse_base_url(_append_provider_path(address.rstrip("/"), provider)))
    except ValueError as error:
        note(f"{place}: its api_base is left out with the entry: {error}")
        return None


def _find_given_address(params: Mapping[str, Any], surroundings: Surroundings) -> object:
    return params.get("api_base") or params.get("base_url") or surroundings.api_base


def _find_address_by_variable(provider: Provider, surroundings: Surroundings, place: str, note: Note) -> object:
    """Return the address in a variable that LiteLLM reads for this provider: of the file, else of the environment."""
    for name in provider.bases:
        if surroundings.variables.get(name):
            note(f"{place}: its address is that of {name} in environment_variables")
            return surroundings.variables[name]
        if surroundings.environ.get(name):
            note(f"{place}: its address is that of {name} in the environment of this import")
            return _ENVIRON + name
    return None


def _strip_credentials(address: str, place: str, note: Note) -> str:
    """Return an address without user, password, query and fragment."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    if host != parts.netloc or parts.query or parts.fragment:
        note(f"{place}: its api_base has a user, a password or a query, which may be secret and is not copied")
    return parts._replace(netloc=host, query="", fragment="").geturl()


def _append_provider_path(address: str, provider: Provider) -> str:
    return address if address.endswith(provider.below) and provider.below else address + provider.below
