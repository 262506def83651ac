"""The entries of LiteLLM's `model_list`: which model of which server each of them is."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeGuard
from urllib.parse import urlsplit

from gateway.approvals.escaping import shown
from gateway.cli.litellm.providers import OTHERS, PROVIDERS, SAME, Provider
from gateway.config.values.addresses import parse_base_url
from gateway.config.values.scalars import parse_text

#: Takes a sentence about something that is not translated, or differs.
Note: TypeAlias = Callable[[str], None]

_ENVIRON: Final = "os.environ/"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NO_KEY: Final = frozenset(("", "empty", "none", "null"))
#: Parameters that are translated, or mean nothing here.
_KNOWN: Final = frozenset(
    (
        *("api_base", "api_key", "api_version", "base_url", "custom_llm_provider", "max_parallel_requests", "model"),
        "weight",
    )
)


@dataclass(frozen=True, slots=True)
class Server:
    """A server and the key for it: `key` is a reference to a variable, or None."""

    provider: str
    base_url: str
    key: str | None
    header: str | None


@dataclass(frozen=True, slots=True)
class Deployment:
    """An entry: the clients' name for a model, and the model of a server."""

    name: str
    model: str
    server: Server
    weight: int
    concurrent: int | None


def deployments_of(entries: object, note: Note) -> list[Deployment]:
    """Return the entries that can be translated; `note` gets the reason for each of the others."""
    found, secrets = [], Secrets()
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        fields = entry if isinstance(entry, dict) else {}
        name, params = fields.get("model_name"), fields.get("litellm_params")
        if not is_line(name):
            note(f"model_list[{number}].model_name: it is no line of text, so the entry is left out")
        elif not isinstance(params, dict) or not is_line(params.get("model")):
            note(f"model_list[{number}].litellm_params.model: it is no line of text, so the entry is left out")
        else:
            deployment = _deployment(name, params, f"model_list[{number}] ({shown(name)})", note, secrets)
            found += [] if deployment is None else [deployment]
    return found


def is_line(value: object) -> TypeGuard[str]:
    """Return whether a value is a text of one line that can be seen."""
    return isinstance(value, str) and value.isprintable() and value.strip() == value != ""


def escaped(text: str) -> str:
    """Return a text as gateway.yaml has it, where `${NAME}` would be a variable."""
    return text.replace("$", "$$")


def is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    """Return whether a value is a whole number in these bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


class Secrets:
    """The variables for secrets that stand in the file: each secret has one of its own."""

    def __init__(self) -> None:
        self._variables: dict[str, str] = {}

    def reference(self, value: object, *, wanted: str) -> tuple[str | None, bool]:
        """Return a secret as a reference to a variable, and whether the file had the secret itself.

        `wanted` is the name of the variable for such a secret, if no other secret has it. None: there is no secret.
        """
        if not isinstance(value, str) or value.strip().lower() in _NO_KEY:
            return None, False
        if (variable := variable_of(value)) is not None:
            return f"${{{variable}}}", False
        name, number = wanted, 1
        while value not in self._variables and name in self._variables.values():
            number += 1
            name = f"{wanted}_{number}"
        return f"${{{self._variables.setdefault(value, name)}}}", True


def variable_of(value: str) -> str | None:
    """Return the variable that a value of LiteLLM stands for, or None."""
    name = value.removeprefix(_ENVIRON)
    return name if value.startswith(_ENVIRON) and _VARIABLE.match(name) else None


def variable_named(*words: str) -> str:
    """Return the name of a variable made of these words."""
    return re.sub(r"[^A-Za-z0-9]+", "_", "_".join(words)).strip("_").upper()


def _deployment(name: str, params: Mapping[str, Any], place: str, note: Note, secrets: Secrets) -> Deployment | None:
    kind, model = _provider(params)
    if not model:
        note(f"{place}: it names no model of {shown(kind)}")
        return None
    provider = PROVIDERS.get(kind)
    if provider is None:
        note(
            f"{place}: the API of {shown(kind)} is not that of OpenAI: keep LiteLLM in front of it, and name LiteLLM "
            "as an upstream (docs/from-litellm.md)"
        )
        return None
    base_url = _base_url(params, kind, provider, place, note)
    if base_url is None:
        return None
    for field in ("api_key", "custom_llm_provider"):
        if not isinstance(params.get(field), str | None):
            note(f"{place}: its {field} is no text, and is left out")
    key, is_open = secrets.reference(params.get("api_key"), wanted=variable_named(kind, name, "api_key"))
    if key is None and "api_key" not in params and provider.key is not None:
        key = f"${{{provider.key}}}"
    if is_open:
        note(f"{place}: its key is in the file, and is not copied: export it as {(key or '')[2:-1]}")
    if provider.remark is not None:
        note(f"{place}: {kind} {provider.remark}")
    if further := sorted(str(one) for one in params.keys() - _KNOWN):
        note(f"{place}: not translated: {shown(', '.join(further))}")
    weight, most = (
        _number(params, name, bound, place, note)
        for name, bound in (("weight", 1000), ("max_parallel_requests", 10**6))
    )
    server = Server(kind, base_url, key, provider.header if key is not None else None)
    return Deployment(
        name,
        model,
        server,
        weight or 1,
        most,
    )


def _number(params: Mapping[str, Any], name: str, most: int, place: str, note: Note) -> int | None:
    value = params.get(name)
    if value is None or is_whole(value, 1, most):
        return value
    note(f"{place}: its {name} is no whole number from 1 to {most}, and is left out")
    return None


def _provider(params: Mapping[str, Any]) -> tuple[str, str]:
    """Return the provider of an entry, and the model's name without it."""
    named, model = params.get("custom_llm_provider"), params["model"]
    first, slash, rest = model.partition("/")
    if isinstance(named, str) and named:
        return SAME.get(named, named), rest if first == named else model
    if slash and (first in PROVIDERS or first in SAME or first in OTHERS):
        return SAME.get(first, first), rest
    return "openai", model


def _base_url(params: Mapping[str, Any], kind: str, provider: Provider, place: str, note: Note) -> str | None:
    """Return the address of a server, or None: there is none, or it is none. No credential in it is copied."""
    given = params.get("api_base") or params.get("base_url")
    if given is None or given == "":
        if provider.base_url is None:
            note(f"{place}: {shown(kind)} needs an api_base")
            return None
        return provider.base_url + provider.below
    variable = variable_of(given) if isinstance(given, str) else None
    if variable is not None:
        return _below(f"${{{variable}}}", provider)
    try:
        address = _without_credentials(parse_text(given).strip(), place, note)
        return escaped(parse_base_url(_below(address.rstrip("/"), provider)))
    except ValueError as error:
        note(f"{place}: its api_base is left out with the entry: {error}")
        return None


def _without_credentials(address: str, place: str, note: Note) -> str:
    """Return an address without user, password, query and fragment."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    if host != parts.netloc or parts.query or parts.fragment:
        note(f"{place}: its api_base has a user, a password or a query, which may be secret and is not copied")
    return parts._replace(netloc=host, query="", fragment="").geturl()


def _below(address: str, provider: Provider) -> str:
    return address if address.endswith(provider.below) and provider.below else address + provider.below
