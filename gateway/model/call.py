"""The core of the chain: one call of the model, as chat completion chunks.

The body is sent as the stages left it, and requests a stream (gateway/model/adaptation/quirks.py). An answer that is
neither a stream of chunks nor a chat completion is an upstream error.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange, Reply
from gateway.contracts.plugin import Counters
from gateway.contracts.records import make
from gateway.contracts.tracing.tracer import Tracer
from gateway.model.adaptation.quirks import LearntQuirks, Quirks, get_key_identity
from gateway.model.candidates import Candidates, ModelTable
from gateway.model.fallback_chain import FallbackCall
from gateway.model.hooks import ContextHook, observe_call, wait_for_room
from gateway.model.listing import ListingClient, ModelLists
from gateway.model.metering import ModelUsageRecorder
from gateway.model.upstream_client import ModelUpstream
from gateway.upstream.endpoint import OPENAI
from gateway.usage.response_parser import clean_model_name
from gateway.usage.tokens import RequestUsage


class ModelCall:
    """The caller of models, and of the lists of models. `clock` is monotonic, in seconds; `hooks` follow each call."""

    def __init__(
        self,
        table: ModelTable,
        *,
        clock: Callable[[], float],
        lists_all: bool = False,
        counters: Counters | None = None,
        hooks: Sequence[ContextHook] = (),
        tracer: Tracer | None = None,
    ) -> None:
        self._table = table
        self._clock = clock
        self._metering = ModelUsageRecorder(counters, hooks)
        self._hooks = hooks
        self._tracer = tracer
        self.quirks = LearntQuirks()
        self._lists = ModelLists(table, clock, merged=lists_all)

    @cached_property
    def key_kinds(self) -> tuple[bool, ...]:
        """Return the kinds of upstreams, (False,) if there are none: True with their own key (first), False without."""
        return tuple(sorted({upstream.has_key for upstream in self._table.upstreams}, reverse=True)) or (False,)

    @property
    def needs_model(self) -> bool:
        """Return whether a request must name its model, because the configuration names none."""
        return self._table.model is None

    def get_quirks(self, upstream: ModelUpstream, model: str, *, caller: Caller) -> Quirks:
        """Return the quirks of a model at an upstream, as configured and as learnt for requests of the caller's key."""
        configured = (member.pool.endpoint.models.quirks for member in upstream.group.members)
        return self.quirks.list_model_quirks(upstream.name, model, whose=get_key_identity(caller)).union(*configured)

    def get_provider(self, body: Mapping[str, object]) -> str:
        """Return the name of the provider that gets a request first; "openai": there is none."""
        try:
            group = self._table.get_candidates(body).models[0].upstream.group
        except GatewayError:
            return OPENAI
        return group.members[0].pool.endpoint.provider

    def list_candidates(self, body: Mapping[str, object]) -> Candidates:
        """Return the models that may answer a request, in order of trial. Raises GatewayError."""
        return self._table.get_candidates(body)

    async def fetch_models(self, asking: ListingClient) -> tuple[int, str, bytes]:
        """Return (status, content type, body) of the list of models. Raises GatewayError."""
        return await self._lists(asking)

    async def __call__(self, exchange: Exchange) -> Reply:
        upstream = ""
        try:
            found = self.list_candidates(exchange.body)
            upstream = found.upstream
            candidates = found.filter_allowed(exchange.caller)
            observers = await wait_for_room(partial(observe_call, self._hooks, exchange))
        except GatewayError:
            asked = clean_model_name(str(exchange.body.get("model") or ""))
            self._metering.record(exchange, RequestUsage(rejected=True), model=asked, upstream=upstream)
            raise
        answering = FallbackCall(
            exchange,
            candidates,
            quirks=self.quirks,
            clock=self._clock,
            metering=self._metering,
            observers=observers,
            tracer=self._tracer,
        )
        try:
            await answering.begin()
        except BaseException:
            await answering.release()
            raise
        return make(Reply, stream=answering.emit_answer, release=answering.release, by=answering.by)
