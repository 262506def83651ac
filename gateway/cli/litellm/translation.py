"""The translation of a LiteLLM configuration: the data of a gateway.yaml, and notes on all that is not in it."""

import hashlib
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.approvals.escaping import escape_line
from gateway.cli.litellm.deployments import Deployment, Secrets, UpstreamServer, is_line, is_whole, parse_deployments
from gateway.cli.litellm.destinations import Surroundings, escape_variables, find_variable
from gateway.cli.litellm.mcp_servers import translate_mcp_servers
from gateway.cli.litellm.remarks import collect_remarks
from gateway.config.values.networks import parse_network
from gateway.config.values.scalars import LONGEST_LABEL
from gateway.config.values.units import parse_positive_duration

_BALANCE: Final[Mapping[str, str]] = {"simple-shuffle": "weighted", "least-busy": "least_loaded"}
#: So much of a name that is too long is shown.
_SHOWN_CHARS: Final = 40
#: LiteLLM lets requests beyond `max_parallel_requests` wait.
_QUEUE_SIZE: Final = 1000
_QUEUE_WAIT: Final = "60s"
_STAGES: Final = ("intent", "memory", "prompt_enhancer", "agent_loop")


@dataclass(slots=True)
class Translation:
    """The result: `data` of the configuration, and `notes`."""

    data: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def translate_config(config: Mapping[str, Any], environ: Mapping[str, str]) -> Translation:
    """Return the translation. The key of clients is hashed, and no secret is copied.

    `environ` may have the variable that holds that key.
    """
    told = Translation()
    sections = ("router_settings", "litellm_settings", "general_settings")
    for name in sections:
        if not isinstance(config.get(name), dict | None):
            told.notes.append(f"{name}: it is no section, and is left out")
    router, litellm, general = (_get_section(config, name) for name in sections)
    groups: defaultdict[str, list[Deployment]] = defaultdict(list)
    secrets = Secrets()
    surroundings = _read_surroundings(config, litellm, environ)
    for deployment in parse_deployments(config.get("model_list"), surroundings, secrets, told.notes.append):
        groups[deployment.name].append(deployment)
    shared = _build_shared_settings(router, litellm, told)
    upstreams = _Upstreams(shared, _convert_balance(router, told))
    uses: dict[str, list[dict[str, str]]] = {}
    for name, group in groups.items():
        if "*" in name:
            upstreams.add_glob(name, group, told)
        else:
            uses[name] = upstreams.list_destinations(name, group, told)
    _add_fallbacks(uses, [*_convert_fallbacks(router), *_convert_fallbacks(litellm)], told)
    for alias, target in _convert_aliases(router):
        if target in uses and is_line(alias):
            uses[alias] = uses[target]
        else:
            told.notes.append(f"router_settings.model_group_alias: {escape_line(alias)} names no model of the file")
    keys = _convert_keys(general, environ, told)
    told.data["listen"] = "0.0.0.0:4000" if keys else "127.0.0.1:4000"
    told.data["upstreams"] = upstreams.build_entries(told)
    if len(told.data["upstreams"]) > 1:
        told.data["passthrough"] = {"by_model": True}
    if models := {name: {"use": use} for name, use in uses.items() if _is_alias(name, use, told)}:
        told.data["models"] = models
    if keys:
        told.data["keys"] = keys
    if is_whole(most := general.get("global_max_parallel_requests"), 1, 1_000_000):
        told.data["limits"] = {"concurrent": most}
    if servers := translate_mcp_servers(config.get("mcp_servers"), secrets, told.notes.append):
        told.data["mcp"] = {"servers": servers}
    _add_stages(config, litellm, told)
    told.notes += collect_remarks(config, sections)
    if upstreams.addresses:
        told.notes.append(f"prompts go to these servers, and to no other: {', '.join(upstreams.addresses)}")
    return told


def _read_surroundings(
    config: Mapping[str, Any], litellm: Mapping[str, Any], environ: Mapping[str, str]
) -> Surroundings:
    listed = config.get("credential_list")
    credentials = {
        str(one.get("credential_name")): _get_section(one, "credential_values")
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict)
    }
    variables = _get_section(config, "environment_variables")
    by_proxy = litellm.get("use_litellm_proxy") is True
    return Surroundings(credentials, variables, environ, litellm.get("api_base"), by_proxy)


class _Upstreams:
    """The upstreams so far: one for each server and key, one for the servers that share a model."""

    def __init__(self, shared: Mapping[str, Any], balance: str | None) -> None:
        self._shared = shared
        self._balance = balance
        self._names: dict[tuple[UpstreamServer, ...], str] = {}
        self._written: dict[str, dict[str, Any]] = {}
        self._models: defaultdict[str, list[str]] = defaultdict(list)
        self._limited: dict[str, str] = {}

    @property
    def addresses(self) -> list[str]:
        """Return the addresses of all servers, each once, in the order of the file."""
        return list(dict.fromkeys(server.base_url for servers in self._names for server in servers))

    def list_destinations(self, name: str, group: Sequence[Deployment], told: Translation) -> list[dict[str, str]]:
        """Return what a name of clients stands for: models and their upstreams, in the order of the file."""
        by_model: defaultdict[tuple[str, bool, str | None, str], list[Deployment]] = defaultdict(list)
        for one in group:
            by_model[one.model, one.server.key is None, one.server.header, one.server.api].append(one)
        if len(by_model) > 1:
            weight = ", so their weight means nothing" if any(one.weight != 1 for one in group) else ""
            told.notes.append(
                f"{escape_line(name)}: its entries name different models. The next one is tried if one fails; requests "
                f"are not shared among them{weight}"
            )
        uses = []
        for (model, *_), ones in by_model.items():
            upstream = self._get_name(ones)
            self._models[upstream].append(escape_variables(model))
            if (use := {"model": escape_variables(model), "upstream": upstream}) not in uses:
                uses.append(use)
        return uses

    def add_glob(self, name: str, group: Sequence[Deployment], told: Translation) -> None:
        """Add the servers of a name that stands for many models. LiteLLM takes a prefix off, such as `groq/`."""
        for one in group:
            self._models[self._get_name([one])].append(escape_variables(name))
        if any(one.model != name for one in group):
            told.notes.append(
                f"{escape_line(name)}: write the models of its server under models: it knows no such prefix"
            )

    def build_entries(self, told: Translation) -> list[dict[str, Any]]:
        """Return the upstreams: the one for all other models is the last. All share the path `/v1`."""
        names = sorted(self._written, key=lambda name: "*" in self._models[name])
        upstreams = []
        for name in names:
            models = sorted(set(self._models[name]))
            limits = self._convert_limits(name, models, told)
            upstreams.append({"name": name, **self._written[name], **limits, "models": models, **self._shared})
        return upstreams

    def _convert_limits(self, name: str, models: Sequence[str], told: Translation) -> dict[str, Any]:
        """Return the queue before the most requests at a time, which is taken away where other models would feel it."""
        if name not in self._limited:
            return {}
        if len(models) == 1:
            return {"queue": {"size": _QUEUE_SIZE, "wait": _QUEUE_WAIT}}
        for endpoint in self._written[name].get("endpoints", ()):
            endpoint.pop("concurrent", None)
        told.notes.append(
            f"max_parallel_requests of {escape_line(self._limited[name])}: left out, since the upstream {name} serves "
            "other models, too: write `concurrent` at its endpoint if the limit is that of the server"
        )
        return {}

    def _get_name(self, ones: Sequence[Deployment]) -> str:
        servers = tuple(dict.fromkeys(one.server for one in ones))
        limited = [one.name for one in ones if one.concurrent is not None]
        if (known := self._names.get(servers)) is None:
            known = self._add(servers, ones)
        if limited:
            self._limited.setdefault(known, limited[0])
        return known

    def _add(self, servers: tuple[UpstreamServer, ...], ones: Sequence[Deployment]) -> str:
        name = self._choose_free_name(servers[0].provider if len(servers) == 1 else ones[0].name)
        self._names[servers] = name
        shared = {} if servers[0].header is None else {"auth_header": servers[0].header}
        if servers[0].api != "chat":
            shared["api"] = servers[0].api
        if len(servers) == 1 and ones[0].concurrent is None:
            key = {} if servers[0].key is None else {"api_key": servers[0].key}
            self._written[name] = {"base_url": servers[0].base_url, **key, **shared}
            return name
        balance = {} if self._balance is None or len(servers) == 1 else {"balance": self._balance}
        by_server = {one.server: one for one in reversed(ones)}
        are_told_apart = len({server.base_url for server in servers}) == len(servers)
        endpoints = [
            _convert_endpoint(by_server[server], None if are_told_apart else f"{name}-{number}")
            for number, server in enumerate(servers, start=1)
        ]
        self._written[name] = {"endpoints": endpoints, **shared, **balance}
        return name

    def _choose_free_name(self, wanted: str) -> str:
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", wanted).strip("-._")[:56] or "upstream"
        name, number = base, 1
        while name in self._written:
            number += 1
            name = f"{base}-{number}"
        return name


def _convert_endpoint(one: Deployment, name: str | None) -> dict[str, Any]:
    endpoint: dict[str, Any] = {"url": one.server.base_url}
    if name is not None:
        endpoint["name"] = name
    if one.server.key is not None:
        endpoint["api_key"] = one.server.key
    if one.weight != 1:
        endpoint["weight"] = one.weight
    if one.concurrent is not None:
        endpoint["concurrent"] = one.concurrent
    return endpoint


def _build_shared_settings(router: Mapping[str, Any], litellm: Mapping[str, Any], told: Translation) -> dict[str, Any]:
    """Return what every upstream has: retries, breaker, timeouts."""
    shared: dict[str, Any] = {}
    if (retries := _convert_count("num_retries", router, litellm, told)) is not None:
        shared["retry"] = {"tries": min(retries + 1, 20)}
    breaker: dict[str, Any] = {}
    if (fails := _convert_count("allowed_fails", router, litellm, told)) is not None:
        breaker["failures"] = min(fails + 1, 1000)
    if (
        pause_s := _convert_seconds("cooldown_time", _find_setting("cooldown_time", router, litellm), told)
    ) is not None:
        breaker["open"] = f"{pause_s}s"
        breaker["longest"] = f"{max(pause_s, 300)}s"
    if breaker:
        shared["breaker"] = breaker
        told.notes.append("allowed_fails and cooldown_time are failures in a row here, and not failures in a minute")
    wait = router.get("timeout", litellm.get("request_timeout"))
    if (wait_s := _convert_seconds("request_timeout", wait, told)) is not None:
        shared["timeouts"] = {"first_byte": f"{wait_s}s"}
    return shared


def _find_setting(name: str, *sections: Mapping[str, Any]) -> object:
    return next((section[name] for section in sections if name in section), None)


def _convert_count(name: str, router: Mapping[str, Any], litellm: Mapping[str, Any], told: Translation) -> int | None:
    value = _find_setting(name, router, litellm)
    if value is None or is_whole(value, 0, sys.maxsize):
        return value
    told.notes.append(f"{name}: it is no whole number, and is left out")
    return None


def _convert_seconds(place: str, value: object, told: Translation) -> int | float | None:
    if value is None:
        return None
    try:
        seconds = parse_positive_duration(value)
    except ValueError as error:
        told.notes.append(f"{place}: it is left out: {error}")
        return None
    return int(seconds) if seconds == int(seconds) else max(round(seconds, 3), 0.001)


def _convert_balance(router: Mapping[str, Any], told: Translation) -> str | None:
    strategy = router.get("routing_strategy")
    if strategy is None:
        return None
    if not isinstance(strategy, str) or strategy not in _BALANCE:
        told.notes.append(
            f"router_settings.routing_strategy: {escape_line(str(strategy))} becomes least_loaded, which is the nearest"
        )
    return _BALANCE.get(str(strategy), "least_loaded")


def _add_fallbacks(
    uses: dict[str, list[dict[str, str]]], fallbacks: Sequence[tuple[str, object]], told: Translation
) -> None:
    own = {name: list(use) for name, use in uses.items()}
    for name, others in fallbacks:
        known = [one for one in others if isinstance(one, str) and one in own] if isinstance(others, list) else []
        if name not in own or not known or known != others:
            told.notes.append(f"fallbacks of {escape_line(name)}: those that are not translated are left out")
        if name in own:
            further = [use for other in known for use in own[other]]
            uses[name] = [*uses[name], *(use for i, use in enumerate(further) if use not in uses[name] + further[:i])]


def _convert_fallbacks(section: Mapping[str, Any]) -> list[tuple[str, object]]:
    listed = section.get("fallbacks")
    return [
        (str(name), others)
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, dict)
        for name, others in entry.items()
    ]


def _convert_aliases(router: Mapping[str, Any]) -> list[tuple[str, str]]:
    aliases = router.get("model_group_alias")
    if not isinstance(aliases, dict):
        return []
    return [(str(a), str(t.get("model") if isinstance(t, dict) else t)) for a, t in aliases.items()]


def _is_alias(name: str, use: Sequence[Mapping[str, str]], told: Translation) -> bool:
    """Return whether a name becomes an alias: it is not the one model's own, and no longer than one may be."""
    if [one["model"] for one in use] == [escape_variables(name)]:
        return False
    if len(name) > LONGEST_LABEL:
        told.notes.append(
            f"{escape_line(name[:_SHOWN_CHARS])}...: no alias has more than {LONGEST_LABEL} characters, so this name "
            "is left out: give it a shorter one"
        )
        return False
    return True


def _convert_keys(general: Mapping[str, Any], environ: Mapping[str, str], told: Translation) -> list[dict[str, Any]]:
    master = general.get("master_key")
    if not is_line(master):
        told.notes.append(
            "general_settings.master_key: there is none, or no line of text, so the gateway listens on loopback only"
        )
        return []
    variable = find_variable(master)
    secret = master if variable is None else environ.get(variable)
    if not secret:
        told.notes.append(
            f"general_settings.master_key: {variable} is not set here, so no key is written: export it and import "
            "again, or write keys with its SHA-256"
        )
        return []
    digest = hashlib.sha256(secret.encode()).hexdigest()
    key = {"name": "master", "sha256": digest, "scopes": ["passthrough", "context", "admin", "metrics"]}
    return [{**key, **_convert_networks(general, told)}]


def _convert_networks(general: Mapping[str, Any], told: Translation) -> dict[str, Any]:
    """Return the networks of `allowed_ips`. One that is none closes the key to all others that are left."""
    allowed = general.get("allowed_ips")
    if allowed is None:
        return {}
    networks = []
    for one in allowed if isinstance(allowed, list) else [allowed]:
        try:
            networks.append(str(parse_network(one)))
        except ValueError as error:
            told.notes.append(f"general_settings.allowed_ips: {escape_line(str(one))} is left out: {error}")
    return {"networks": networks or ["127.0.0.1/32"]}


def _add_stages(config: Mapping[str, Any], litellm: Mapping[str, Any], told: Translation) -> None:
    """Add the stages of the default chain, with one for guardrails that are always on and one for the cache."""
    further: list[dict[str, Any]] = []
    if _has_default_guardrails(config.get("guardrails")) or _has_default_guardrails(litellm.get("guardrails")):
        further.append({"use": "redact_pii", "with": {"mode": "shadow"}})
        told.notes.insert(
            0,
            "guardrails: the new gateway redacts and blocks NOTHING yet: redact_pii is in the chain with mode shadow, "
            "which only counts. Choose its rules, and write mode: enforce (docs/stages.md)",
        )
    if litellm.get("cache") is True:
        params = _get_section(litellm, "cache_params")
        options: dict[str, Any] = {"any_temperature": True, "shared_by": "tenant"}
        if (ttl_s := _convert_seconds("litellm_settings.cache_params.ttl", params.get("ttl"), told)) is not None:
            options["ttl"] = f"{ttl_s}s"
        further.append({"use": "response_cache", "with": options})
        told.notes.append("litellm_settings.cache: each worker has a cache of its own, in memory, for the context lane")
    if further:
        told.data["chains"] = {"assistant": [*({"use": stage} for stage in _STAGES), *further]}


def _has_default_guardrails(listed: object) -> bool:
    """Return whether a list of guardrails has one that is always on, in the form of any version of LiteLLM."""
    for one in listed if isinstance(listed, list) else ():
        settings = one if isinstance(one, dict) else {}
        for part in (settings, *settings.values()):
            if isinstance(part, dict) and part.get("default_on") is True:
                return True
    return False


def _get_section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name)
    return found if isinstance(found, dict) else {}
