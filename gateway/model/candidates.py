"""The models that may answer a request, in the order in which they are tried: one, or an alias's. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.model_names import MODEL_CHARS, is_listed_model
from gateway.model.upstream_client import ModelUpstream

#: Fields of a request by which servers use other models than its `model`: OpenRouter, LiteLLM, older OpenAI and Azure,
#: servers of adapters.
FURTHER: Final = (
    *("models", "route", "preset", "plugins"),
    *(
        "fallbacks",
        "context_window_fallbacks",
        "content_policy_fallbacks",
        "default_fallbacks",
        "model_list",
        "extra_body",
    ),
    *("engine", "deployment_id", "adapter_id", "adapters", "lora_id", "lora_request"),
)
#: So many names of models are looked up once. Clients may send any.
_REMEMBERED: Final = 1000
#: The models of an alias, each with the name of its upstream; None: the model finds it.
Use: TypeAlias = Sequence[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class ModelCandidate:
    """A model at an upstream. `model` is its name there; None: the request names it."""

    model: str | None
    upstream: ModelUpstream

    def get_model_name(self, body: Mapping[str, object]) -> str:
        """Return the name of the model that a request with this body is sent for."""
        return str(body.get("model", "")) if self.model is None else self.model


@dataclass(slots=True)
class Candidates:
    """The models that may answer one request, in their order. `name` is the requested model or alias.

    `body` is the request's. It is not changed after it is made.
    """

    name: str
    models: Sequence[ModelCandidate]
    body: Mapping[str, object] = field(default_factory=dict)

    def filter_allowed(self, caller: Caller) -> "Candidates":
        """Return the candidates that the caller may use. Raises GatewayError (model_not_allowed, upstream_not_allowed).

        A key that may use an alias may use what that stands for, at the upstreams of the key.
        """
        if not (caller.bounds.models or caller.bounds.upstreams):
            return self
        caller.check_model(self.name)
        if caller.bounds.models:
            self._check_routing_fields()
        models = [candidate for candidate in self.models if caller.may_use_upstream(candidate.upstream.name)]
        if not models:
            caller.check_upstream(self.upstream)
        return Candidates(self.name, models)

    def _check_routing_fields(self) -> None:
        """Raise GatewayError (model_not_allowed) for a field by which the upstream may use another model."""
        for name in FURTHER:
            if self.body.get(name) is not None:
                raise GatewayError(
                    "model_not_allowed",
                    f"This gateway key is bound to models, and {name!r} may make an upstream use others: leave it out, "
                    "or use another key.",
                    param=name,
                )

    def is_allowed(self, caller: Caller) -> bool:
        """Return whether the caller may use at least one of the candidates."""
        is_there = any(caller.may_use_upstream(candidate.upstream.name) for candidate in self.models)
        return is_there and caller.may_use_model(self.name)

    @property
    def has_key(self) -> bool:
        """Return whether one of their upstreams has its own key: the client's credential may then be the gateway's."""
        return any(candidate.upstream.has_key for candidate in self.models)

    @property
    def upstream(self) -> str:
        """Return the name of the upstream that gets the request first."""
        return self.models[0].upstream.name


class ModelTable:
    """The models of one configuration. `fixed` is the upstream, and `model` the model or alias, for all requests."""

    def __init__(
        self,
        upstreams: Sequence[ModelUpstream],
        *,
        fixed: str | None = None,
        model: str | None = None,
        aliases: Mapping[str, Use] = MappingProxyType({}),
    ) -> None:
        self.upstreams = upstreams
        self.model = model
        self.aliases = aliases
        self._by_name = {upstream.name: upstream for upstream in upstreams}
        self._fixed = None if fixed is None else self._by_name.get(fixed)
        self._found: dict[str, Sequence[ModelCandidate]] = {}  # by the requested name

    def get_candidates(self, body: Mapping[str, object]) -> Candidates:
        """Return the models that may answer a request, in order of trial. Raises GatewayError."""
        asked = str(body.get("model", ""))
        if len(asked) > MODEL_CHARS:
            raise GatewayError(
                "invalid_field",
                f"'model' has {len(asked)} characters, and no name of a model has more than {MODEL_CHARS}: name one of "
                "'GET /context/v1/models'.",
                param="model",
            )
        return self.get_candidates_by_name(self.model or asked, body)

    def get_candidates_by_name(self, name: str, body: Mapping[str, object] = MappingProxyType({})) -> Candidates:
        """Return the models of a name or an alias. Raises GatewayError (upstream_unavailable)."""
        models = self._found.get(name)
        if models is None:
            models = self._resolve_models(name)
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[name] = models
        return Candidates(name, models, body)

    def _resolve_models(self, name: str) -> Sequence[ModelCandidate]:
        use = self.aliases.get(name)
        if use is None:
            return (ModelCandidate(self.model, self.get_upstream(name)),)
        return [ModelCandidate(model, self._resolve_upstream(model, upstream)) for model, upstream in use]

    def get_upstream(self, model: str) -> ModelUpstream:
        """Return the upstream of a model by its name. Raises GatewayError (upstream_unavailable)."""
        if self._fixed is not None:
            return self._fixed
        for upstream in self.upstreams:
            if is_listed_model(model, upstream.models):
                return upstream
        if not self.upstreams:
            raise GatewayError("upstream_unavailable", "No upstream is configured; add one under 'upstreams'.")
        return next((upstream for upstream in self.upstreams if not upstream.models), self.upstreams[0])

    def _resolve_upstream(self, model: str, upstream: str | None) -> ModelUpstream:
        return self.get_upstream(model) if upstream is None else self._by_name[upstream]
