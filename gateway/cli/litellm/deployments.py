"""The entries of LiteLLM's `model_list`: which model of which server each of them is."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gateway.approvals.escaping import shown
from gateway.cli.litellm.providers import OTHERS, PROVIDERS, SAME, Provider

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
        params = entry.get("litellm_params") if isinstance(entry, dict) else None
        name = entry.get("model_name") if isinstance(entry, dict) else None
        if not isinstance(params, dict) or not isinstance(params.get("model"), str) or not isinstance(name, str):
            note(f"model_list[{number}]: it has no model_name or no litellm_params.model")
            continue
        place = f"model_list[{number}] ({shown(name)})"
        if (deployment := _deployment(name, params, place, note, secrets)) is not None:
            found.append(deployment)
    return found


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
    base_url = _base_url(params, provider)
    if base_url is None:
        note(f"{place}: {kind} needs an api_base")
        return None
    key, is_open = secrets.reference(params.get("api_key"), wanted=variable_named(kind, name, "api_key"))
    if key is None and "api_key" not in params and provider.key is not None:
        key = f"${{{provider.key}}}"
    if is_open:
        note(f"{place}: its key is in the file, and is not copied: export it as {(key or '')[2:-1]}")
    if provider.remark is not None:
        note(f"{place}: {kind} {provider.remark}")
    if further := sorted(str(one) for one in params.keys() - _KNOWN):
        note(f"{place}: not translated: {shown(', '.join(further))}")
    weight, most = params.get("weight"), params.get("max_parallel_requests")
    server = Server(kind, base_url, key, provider.header if key is not None else None)
    return Deployment(
        name,
        model,
        server,
        weight if isinstance(weight, int) and 1 <= weight <= 1000 else 1,
        most if isinstance(most, int) and most >= 1 else None,
    )


def _provider(params: Mapping[str, Any]) -> tuple[str, str]:
    """Return the provider of an entry, and the model's name without it."""
    named, model = params.get("custom_llm_provider"), params["model"]
    first, slash, rest = model.partition("/")
    if isinstance(named, str) and named:
        return SAME.get(named, named), rest if first == named else model
    if slash and (first in PROVIDERS or first in SAME or first in OTHERS):
        return SAME.get(first, first), rest
    return "openai", model


def _base_url(params: Mapping[str, Any], provider: Provider) -> str | None:
    given = params.get("api_base") or params.get("base_url")
    if not isinstance(given, str) or not given:
        return None if provider.base_url is None else provider.base_url + provider.below
    variable = variable_of(given)
    base_url = given.rstrip("/") if variable is None else f"${{{variable}}}"
    return base_url if base_url.endswith(provider.below) and provider.below else base_url + provider.below
