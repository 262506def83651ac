"""The building of plans: from a parsed head to the records, the dispatcher and the observers of its requests.

It is one pass. Each part is decided once, from the head, the route and the caller, and nothing is changed afterwards:

1. *Route.* The target of the head is matched, with `/context` taken off (`_match_route`).
2. *Targets.* For an endpoint: the caller, its right to go there, and the head for the upstream (`_build_target`).
3. *Dispatcher.* None, which is `Direct`, for an upstream that is one endpoint without rules, else `Failover` or
   `Hedge`; for a route by model, `ModelRouting` in front of those.
4. *Policy* and *observers*, which depend on the caller of the first target.

Refusals are GatewayErrors, and are never remembered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from gateway.auth.host_guard import HostGuard
from gateway.auth.keyring import Identity, KeyRing
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.http.request_head import RequestHead
from gateway.lanes.classify import CONTEXT_BASE, is_relayable_path
from gateway.lanes.passthrough.dispatch.dispatcher import DispatcherFactory
from gateway.lanes.passthrough.dispatch.failover import Failover, FailoverFactory
from gateway.lanes.passthrough.dispatch.hedge import Hedge
from gateway.lanes.passthrough.dispatch.model_routing import ModelRoutingFactory
from gateway.lanes.passthrough.dispatch.targets import ModelTargets, Targets
from gateway.lanes.passthrough.observers.observer import Observers, PassthroughFeature, PlannedRequest
from gateway.lanes.passthrough.plan import Plan
from gateway.lanes.passthrough.plan_records import PlannedHead, PlanTarget, RequestCounts, RequestPolicy
from gateway.lanes.passthrough.repetition import computes, may_repeat, may_run_twice
from gateway.lanes.passthrough.upstream_head import build_upstream_head
from gateway.lanes.routes import Route, RouteTable, get_path
from gateway.telemetry.metrics import Metrics
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group

_API = b"/v1/"
_NOTHING: Final = frozenset[bytes]()
#: The field that names a conversation, which keeps its endpoint (`balance: sticky`).
_CONVERSATION = b"x-context-conversation"


@dataclass(frozen=True, slots=True)
class RoutedHead:
    """A head with its route. `target` is the one of the client, `plain` the same without `/context`."""

    head: RequestHead
    target: bytes
    plain: bytes
    cut: int
    route: Route

    @property
    def api_path(self) -> bytes:
        """Return the path as the API has it."""
        return self.route.get_api_path(get_path(self.plain))


class PlanBuilder:
    """Builds the plans of one configuration.

    `served` are the upstreams with the patterns of their models, for routes by model. `context_upstream` is the index
    of the upstream that the configuration names for the context lane. `features` choose the observers.
    """

    def __init__(
        self,
        *,
        routes: RouteTable,
        groups: Sequence[Group],
        served: Sequence[tuple[Group, tuple[str, ...]]],
        keys: KeyRing,
        door: HostGuard,
        metrics: Metrics,
        features: Sequence[PassthroughFeature],
        context_upstream: int | None,
    ) -> None:
        self._routes = routes
        self._groups = groups
        self._served = served
        self._keys = keys
        self._door = door
        self._metrics = metrics
        self._features = features
        self._context_upstream = context_upstream
        self._written_fields = frozenset(chain.from_iterable(feature.written_fields for feature in features))

    def build(self, head: RequestHead, target: bytes, cut: int) -> Plan:
        """Return the plan of a head, whose target is an alias resolved. Raises GatewayError: it is refused."""
        route, plain = self._match_route(target)
        routed = RoutedHead(head, target, plain, cut, route)
        home = self._groups[route.index]
        by_model = route.by_model and bool(head.length or head.chunked)
        dispatcher: DispatcherFactory | None = None
        if by_model:
            groups = (home, *(group for group, _ in self._served))
            first = self._find_first_allowed(routed, groups)
            models = ModelTargets(home, self._served, partial(self._build_targets, routed))
            dispatcher = ModelRoutingFactory(models)
        elif home.plain:
            groups, first = (home,), self._build_target(routed, home, home.members[0])
        else:
            targets = self._build_targets(routed, home)
            groups, first = (home, *targets.fallbacks), targets.first
            dispatcher = FailoverFactory(targets, Failover if home.hedges is None else Hedge)
        policy = self._build_policy(routed, first, groups if by_model else (home,), by_model=by_model)
        request = PlannedRequest(
            head=head,
            path=get_path(target),
            caller=first.identity.caller,
            upstream=home.name if dispatcher is None else None,
            upstreams=tuple(group.name for group in groups),
            by_model=by_model,
            reads_tokens=any(feature.needs_tokens(first.identity.caller) for feature in self._features),
            reads_at_once=any(feature.reads_at_once for feature in self._features),
        )
        return Plan(_build_planned_head(routed), first, policy, dispatcher, self._build_observers(request))

    def _match_route(self, target: bytes) -> tuple[Route, bytes]:
        """Return the route of a target, and the target as it is below `/v1`. Raises GatewayError (unknown_route)."""
        plain = target.removeprefix(b"/context") if target.startswith(CONTEXT_BASE) else target
        route = self._routes.match(plain)
        if plain is not target and self._groups:
            # A route of a part of the API comes before the lane's own upstream, and that before a route of all of it.
            named = self._context_upstream
            if route is None or (named is not None and len(route.prefix) <= len(_API)):
                route = Route(_API, named or 0)
        if route is None or not route.matches(plain):
            raise GatewayError(
                "unknown_route",
                "No route for this path. The OpenAI API is served under '/v1': set the client's base URL to "
                "'http://<this host>/v1'.",
            )
        return route, plain

    def _build_targets(self, routed: RoutedHead, group: Group) -> Targets:
        """Return the targets at the endpoints of an upstream and of its fallbacks. Raises GatewayError."""
        first = self._build_target(routed, group, group.members[0])
        head, path = routed.head, routed.api_path
        sticky = first.identity.caller.get_cache_group((head.find_value(_CONVERSATION) or b"").strip())
        twice, is_computed = may_run_twice(head, path), computes(head, path)
        return Targets(
            group, first, partial(self._build_target, routed), twice=twice, sticky=sticky, computes=is_computed
        )

    def _find_first_allowed(self, routed: RoutedHead, groups: Sequence[Group]) -> PlanTarget:
        """Return the target at the first upstream that the caller may use. Raises GatewayError: there is none."""
        for group in groups[:-1]:
            try:
                return self._build_target(routed, group, group.members[0])
            except GatewayError as error:
                if error.code != "upstream_not_allowed":
                    raise
        return self._build_target(routed, groups[-1], groups[-1].members[0])

    def _build_target(self, routed: RoutedHead, group: Group, member: Member) -> PlanTarget:
        """Return the target at one endpoint. Raises GatewayError: the caller may not go there."""
        head, endpoint = routed.head, member.pool.endpoint
        onward = routed.route.rewrite_target(routed.plain, endpoint.base_path)
        identity = self._identify(head, routed.target, upstream_has_key=endpoint.api_key is not None)
        identity.caller.check_upstream(endpoint.name)
        _check_models(identity.caller)
        before, after = build_upstream_head(head, onward, endpoint, identity, without=self._written_fields)
        if routed.cut < 0 and head.length is not None:
            before, after = before + (head.find_value(b"content-length") or b"") + after, b""
        kept = Identity(identity.caller, _NOTHING, identity.key)  # without the texts of keys
        return PlanTarget(group, member, (before, after), kept)

    def _build_policy(
        self, routed: RoutedHead, first: PlanTarget, groups: Sequence[Group], *, by_model: bool
    ) -> RequestPolicy:
        """Return the policy for requests that may go to these upstreams."""
        head, identity = routed.head, first.identity
        prefix = CONTEXT_BASE if routed.target.startswith(CONTEXT_BASE) else routed.route.prefix
        tally = self._metrics.route(prefix.decode(), "passthrough")
        is_shared = self._door.find_shared_origin(head) is not None
        return RequestPolicy(
            counts=RequestCounts(tally, tally.count_codes(head.method.decode())),
            plain=head.keep_alive and head.method != b"HEAD" and not head.websocket and not is_shared,
            watched=identity.key is not None and self._keys.is_watched(identity.key),
            repeatable=may_repeat(head, routed.api_path),
            held_bytes=self._compute_held_bytes(identity.caller, groups, by_model=by_model),
            sharing=self._door.get_cors_fields(head),
        )

    def _compute_held_bytes(self, caller: Caller, groups: Sequence[Group], *, by_model: bool) -> int | None:
        """Return how much of a body is held, where a place or a feature needs it whole; None: nothing is held.

        `groups` are the upstreams that the requests may be for, `by_model`: by the models that their bodies name.
        """
        reached = {*groups, *chain.from_iterable(group.fallbacks for group in groups)}
        names = [group.name for group in reached]
        needs = any(group.has_places for group in reached) or any(
            feature.needs_whole_body(caller, names, by_model=by_model) for feature in self._features
        )
        return groups[0].kept_bytes if needs else None

    def _build_observers(self, request: PlannedRequest) -> Observers | None:
        """Return the factories of the observers that features choose for a request; None: there are none."""
        found = (feature.choose_observer(request) for feature in self._features)
        factories = [factory for factory in found if factory is not None]
        return Observers(factories) if factories else None

    def _identify(self, head: RequestHead, target: bytes, *, upstream_has_key: bool) -> Identity:
        """Return the caller of a request that passes through. Raises GatewayError."""
        if is_relayable_path(target):
            try:
                return self._keys.identify(head, upstream_has_key=upstream_has_key, scope="context")
            except GatewayError as error:
                if error.code != "scope_missing":
                    raise
        return self._keys.identify(head, upstream_has_key=upstream_has_key, scope="passthrough")


def _build_planned_head(routed: RoutedHead) -> PlannedHead:
    """Return the facts of a head that its plan keeps."""
    head = routed.head
    return PlannedHead(
        method=head.method,
        path=get_path(routed.target),
        minor=head.minor,
        length=None if head.chunked else head.length or 0,
        cut=routed.cut,
        keep_alive=head.keep_alive,
        expects_continue=head.expects_continue,
        websocket=head.websocket,
    )


def _check_models(caller: Caller) -> None:
    """Raise GatewayError (model_not_allowed) for a key that is bound to models: no whole body is read for it.

    The model that `by_model` finds chooses an upstream and proves nothing: a body may name its model twice.
    """
    if caller.bounds.models:
        raise GatewayError(
            "model_not_allowed",
            "This gateway key is bound to models, and passthrough does not check which model a request is for: use the "
            "context lane (the base URL '/context/v1'), or another key.",
        )
