"""The entries of LiteLLM's `model_list`: which model of which server each of them is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from gateway.approvals.escaping import escape_line
from gateway.cli.litellm.destinations import Note, Surroundings, find_address, find_provider, find_variable
from gateway.cli.litellm.providers import PROVIDERS
from gateway.contracts.model_apis import ApiName

_NO_KEY: Final = frozenset(("", "empty", "none", "null"))
#: Parameters that are translated, or mean nothing here.
_KNOWN: Final = frozenset(
    (
        *("api_base", "api_key", "api_version", "base_url", "custom_llm_provider", "input_cost_per_token"),
        *("litellm_credential_name", "max_parallel_requests", "model", "output_cost_per_token", "use_litellm_proxy"),
        "weight",
    )
)
#: Parameters that limit an entry.
_LIMITS: Final = frozenset(("budget_duration", "max_budget", "rpm", "tpm"))


@dataclass(frozen=True, slots=True)
class UpstreamServer:
    """A server and the key for it: `key` is a reference to a variable, or None. `api` is what its models speak."""

    provider: str
    base_url: str
    key: str | None
    header: str | None
    api: ApiName


@dataclass(frozen=True, slots=True)
class Deployment:
    """An entry: the clients' name for a model, and the model of a server."""

    name: str
    model: str
    server: UpstreamServer
    weight: int
    concurrent: int | None


def parse_deployments(entries: object, surroundings: Surroundings, secrets: "Secrets", note: Note) -> list[Deployment]:
    """Return the entries that can be translated; `note` gets the reason for each of the others."""
    found = []
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        fields = entry if isinstance(entry, dict) else {}
        name, params = fields.get("model_name"), fields.get("litellm_params")
        if not is_line(name):
            note(f"model_list[{number}].model_name: it is no line of text, so the entry is left out")
        elif not isinstance(params, dict) or not is_line(params.get("model")):
            note(f"model_list[{number}].litellm_params.model: it is no line of text, so the entry is left out")
        else:
            place = f"model_list[{number}] ({escape_line(name)})"
            whole = _with_credential(params, surroundings, place, note)
            deployment = None if whole is None else _convert_deployment(name, whole, place, surroundings, note, secrets)
            if deployment is not None:
                found.append(deployment)
                _note_price(deployment.model, params, fields.get("model_info"), place, note)
    return found


def is_line(value: object) -> TypeGuard[str]:
    """Return whether a value is a text of one line that can be seen."""
    return isinstance(value, str) and value.isprintable() and value.strip() == value != ""


def is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    """Return whether a value is a whole number in these bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


class Secrets:
    """The variables for secrets that stand in the file: each secret has its own."""

    def __init__(self) -> None:
        self._variables: dict[str, str] = {}

    def build_reference(self, value: object, *, wanted: str) -> tuple[str | None, bool]:
        """Return a secret as a reference to a variable, and whether the file had the secret itself.

        `wanted` is the name of the variable for such a secret, if no other secret has it. None: the value holds no
        secret.
        """
        if not isinstance(value, str) or value.strip().lower() in _NO_KEY:
            return None, False
        if (variable := find_variable(value)) is not None:
            return f"${{{variable}}}", False
        name, number = wanted, 1
        while value not in self._variables and name in self._variables.values():
            number += 1
            name = f"{wanted}_{number}"
        return f"${{{self._variables.setdefault(value, name)}}}", True


def build_variable_name(*words: str) -> str:
    """Return the name of a variable made of these words."""
    return re.sub(r"[^A-Za-z0-9]+", "_", "_".join(words)).strip("_").upper()


def _with_credential(
    params: Mapping[str, Any], surroundings: Surroundings, place: str, note: Note
) -> Mapping[str, Any] | None:
    """Return the parameters of an entry, overridden by its credential's. None: that credential is missing."""
    name = params.get("litellm_credential_name")
    if name is None:
        return params
    values = surroundings.credentials.get(str(name))
    if values is None:
        note(f"{place}: credential_list has no {escape_line(str(name))}, so the entry is left out: write its api_base")
        return None
    return {**params, **values}


def _note_price(model: str, params: Mapping[str, Any], info: object, place: str, note: Note) -> None:
    told = {**(info if isinstance(info, dict) else {}), **params}
    costs = {
        name: round(cost * 1e6, 6)
        for name in ("input", "output")
        if isinstance(cost := told.get(f"{name}_cost_per_token"), int | float) and not isinstance(cost, bool)
    }
    if costs:
        line = ", ".join(f"{name}: {cost:g}" for name, cost in costs.items())
        note(f"{place}: write its price into the file of usage.prices: {{model: {escape_line(model)}, {line}}}")


def _convert_deployment(
    name: str, params: Mapping[str, Any], place: str, surroundings: Surroundings, note: Note, secrets: Secrets
) -> Deployment | None:
    if "mock_response" in params:
        note(f"{place}: it answers by its mock_response and asks no server, so it is left out")
        return None
    if (found := find_provider(params, surroundings, place, note)) is None:
        return None
    kind, model = found
    provider = PROVIDERS[kind]
    base_url = find_address(params, kind, surroundings, place, note)
    if base_url is None:
        return None
    for field in ("api_key", "custom_llm_provider"):
        if not isinstance(params.get(field), str | None):
            note(f"{place}: its {field} is no text, and is left out")
    key, is_open = secrets.build_reference(params.get("api_key"), wanted=build_variable_name(kind, name, "api_key"))
    if key is None and "api_key" not in params and provider.key is not None:
        key = f"${{{provider.key}}}"
    if is_open:
        note(f"{place}: its key is in the file, and is not copied: export it as {(key or '')[2:-1]}")
    if provider.remark is not None:
        note(f"{place}: {kind} {provider.remark}")
    if further := sorted(str(one) for one in params.keys() - _KNOWN):
        advice = "" if _LIMITS.isdisjoint(further) else " (docs/limits.md has limits of upstreams, models and keys)"
        note(f"{place}: not translated: {escape_line(', '.join(further))}{advice}")
    weight, most = (
        _convert_number(params, name, bound, place, note)
        for name, bound in (("weight", 1000), ("max_parallel_requests", 10**6))
    )
    server = UpstreamServer(kind, base_url, key, provider.header if key is not None else None, provider.api)
    return Deployment(
        name,
        model,
        server,
        weight or 1,
        most,
    )


def _convert_number(params: Mapping[str, Any], name: str, most: int, place: str, note: Note) -> int | None:
    value = params.get(name)
    if value is None or is_whole(value, 1, most):
        return value
    note(f"{place}: its {name} is no whole number from 1 to {most}, and is left out")
    return None
