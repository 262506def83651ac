"""The spine of one configuration: look at the door, match the route, authenticate, classify, and plan.

A reload builds another Router. Plans are stored by the exact bytes they were made from, so a revoked key or a changed
route cannot live on in them.

Theory of operation. Clients send the same head again and again, and only the digits of Content-Length differ. So the
whole decision about a head is made once and remembered as a `Plan`. For example, these two heads share one plan:

    POST /v1/chat/completions HTTP/1.1 | Host: gw | Content-Length: 512 | ...
    POST /v1/chat/completions HTTP/1.1 | Host: gw | Content-Length: 73 | ...

A head with another key, another path or another order of fields has another plan.

1. `remembered` cuts the digits out of the bytes (`_split`) and looks the rest up. The key is all other bytes, so an
   equal key means an equal caller, route and framing. `cut`, the place of the digits, must be equal as well, and the
   digits must be 1 to 18 decimal digits. The head is not parsed.
2. If there is no plan, the connection parses the head and calls `route`. It checks in this order: method, preflight,
   door (for every request only where there are no keys), and lane. Then, for the gateway's own pages, door and method,
   and for a passthrough, route and caller. Every refusal is a GatewayError.
3. `route` returns None for our own pages and for the context lane. They are never planned: aiohttp serves them. But a
   head of the context lane is remembered as it was read (`Heads`), cut in the same way, if its key is known. `head`
   returns it again for an equal one. What follows from its fields is found out once (`RequestHead.once`). Whether its
   key may be used now is checked each time (`KeyRing.recognise`, `identify`).
4. A passthrough request is planned (`_plan`): caller, upstream, and the head for the upstream in two parts around the
   digits. `Plans` stores it within bounded memory, and drops the oldest first.

Plans that are made each time, and never stored: a handshake (`Connection: upgrade`), and a head in which the first
`ontent-length: ` is not the field itself, or is not spelled in the usual way. Such a plan has `cut` -1, so the length
stands in the head as it came.

Dangers.
- A plan that outlives its reason. Nothing in it may depend on time, or on anything besides the head and this
  configuration. Refusals are never stored. Limits that do change (draining, too many requests) are checked by the
  connection, outside of plans. A key that ends, is bound to networks or can be revoked is looked at each time that a
  plan of its is used (`Plan.watched`).
- Digits from a wrong place. `X-Note: content-length: 5` contains the needle. `route` compares the bytes before the
  digits with a whole field name at the beginning of a line before it stores a plan.
- Two fields with a length. Such a head is refused (RFC 9110 section 8.6 allows that), so it never gets a plan. A stored
  head with a single Content-Length cannot gain a second one, because the key would differ.

https://www.rfc-editor.org/rfc/rfc9110#section-8.6
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from gateway.auth.host_guard import HostGuard
from gateway.auth.keyring import Identity, KeyRing, Wire, get_peer_address
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError, not_allowed
from gateway.http.redact import maskable
from gateway.http.request_head import HeadLimits, RequestHead, parse_request_head
from gateway.lanes.classify import CONTEXT_BASE, classify, is_plain
from gateway.lanes.passthrough.balanced import Balanced
from gateway.lanes.passthrough.by_model import ByModel
from gateway.lanes.passthrough.hedging import Hedging
from gateway.lanes.passthrough.limited import limited
from gateway.lanes.passthrough.metered import METERED, Meter, meter_of
from gateway.lanes.passthrough.splice import Splice
from gateway.lanes.passthrough.traced import traced
from gateway.lanes.passthrough.unread import Unread
from gateway.lanes.plan import ModelWays, Plan, Ways, computes, may_repeat, may_run_twice, upstream_head
from gateway.lanes.plans import Heads, KnownHead, Plans
from gateway.lanes.routes import Route, RouteTable, get_path, resolve_alias
from gateway.lanes.spelling import may_make
from gateway.limits.admission import Admission
from gateway.limits.limiter import Limiter
from gateway.limits.rule import LimitRule
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing.tracer import Tracer
from gateway.telemetry.tracing.w3c import TRACE_FIELDS
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group
from gateway.usage.tokens import Recorded

#: This page is open to every client, under every host name: it reveals nothing (Claude Code sends `HEAD /` first).
ROOT = b"/"
_API = b"/v1/"
#: The field that names a conversation, which keeps its endpoint (`balance: sticky`).
_CONVERSATION = b"x-context-conversation"
_OWN_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_SPELLED = frozenset(method.encode() for method in _OWN_METHODS)
_NEEDLES = (b"ontent-Length: ", b"ontent-length: ")
_LENGTH_FIELD = b"\r\ncontent-length: "


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTimeouts:
    """The times that a client may take, in seconds (configuration: `limits`).

    `body_rate` is the least of a body that holds places which others want, in bytes a second.
    """

    head_s: float = 10.0
    body_idle_s: float = 60.0
    body_rate: int = 8 << 10
    write_s: float = 60.0
    keepalive_s: float = 75.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptLimits:
    """The bounds of what is accepted at once (configuration: `limits`)."""

    head: HeadLimits = field(default_factory=HeadLimits)
    connections: int = 10000
    concurrent: int | None = None


class Router:
    """One configuration's way in. Used on one event loop only."""

    def __init__(
        self,
        *,
        routes: Sequence[Route],
        groups: Sequence[Group],
        keys: KeyRing,
        door: HostGuard,
        metrics: Metrics,
        own_paths: Collection[bytes],
        limits: AcceptLimits,
        timeouts: ClientTimeouts,
        context_upstream: int | None = None,
        models: Sequence[tuple[str, ...]] = (),
        recorded: Recorded | None = None,
        unread: Unread | None = None,
        limiter: Limiter | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """`context_upstream` is the index of the upstream that the configuration names for the context lane.

        `models` are the patterns of each upstream, for routes by model. `recorded` takes the usage of passthrough
        requests; None: it is not recorded. `unread` are the answers of the worker that wait to be read for it.
        `limiter` has their limits, `tracer` makes traces; None: there are none.
        """
        self.groups = tuple(groups)
        self._upstream_has_key = not groups or any(group.has_key for group in groups)
        self.door = door
        self.limits = limits
        self.timeouts = timeouts
        self._routes = RouteTable(routes)
        self.keys = keys
        self._metrics = metrics
        self._own_paths = frozenset(own_paths)
        self._context_upstream = context_upstream
        self._served = tuple((group, patterns) for group, patterns in zip(groups, models, strict=False) if patterns)
        self._recorded = recorded
        self._unread = unread or Unread()
        self._limiter = limiter
        self.tracer = tracer
        self._plans = Plans()
        self._by_head = self._plans.by_head
        self._heads = Heads()

    def find_plan(self, data: bytes, end: int, wire: Wire) -> tuple[Plan, bytes] | None:
        """Return the plan for the head `data[:end]` (no empty line) if an equal one was seen, and its digits."""
        key, cut, digits = _split(data, end)
        plan = self._by_head.get(key)
        if plan is None or plan.cut != cut or (cut >= 0 and not (digits.isdigit() and len(digits) <= 18)):
            return None
        if plan.watched and plan.key is not None and not self.keys.still_is(plan.key, wire):
            self._plans.drop(key)
            return None
        return plan, digits

    def head(self, data: bytes, end: int, wire: Wire) -> tuple[RequestHead, bool]:
        """Return the head `data[:end]` (no empty line), and whether an equal one went to the context lane.

        Then this one goes there, too. Raises GatewayError with the status to answer.
        """
        key, cut, digits = _split(data, end)
        known = self._heads.by_head.get(key)
        if known is None or known.cut != cut or (cut >= 0 and not (digits.isdigit() and len(digits) <= 18)):
            return parse_request_head(data[: end + 4], self.limits.head, peer=get_peer_address(wire)), False
        return known.again(digits, get_peer_address(wire)), True

    def route(self, head: RequestHead, raw: bytes) -> tuple[Plan, bytes] | None:
        """Return the plan for a head (`raw`: its bytes without the empty line) and its digits; None for our own routes.

        Raises GatewayError with the answer to give instead.
        """
        if head.method in (b"CONNECT", b"TRACE") or head.target == b"*":
            raise not_allowed(
                "The gateway does not support CONNECT, TRACE and 'OPTIONS *': send another method.", _OWN_METHODS
            )
        if self.door.is_preflight(head):
            return None
        meant = resolve_alias(head.target)
        if self.keys.is_empty and get_path(meant) != ROOT:
            self.door.check(head)
        mode = classify(head, meant, self._own_paths)
        if mode != "passthrough":
            if get_path(meant) != ROOT:
                self.door.check(head)
            if head.method not in _SPELLED:
                text = "This page does not support the method: use GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS."
                raise not_allowed(text, _OWN_METHODS)
            if mode == "context":
                self._remember(head, raw)
            return None
        target = meant if self._routes.match(head.target) is None else head.target  # a configured path goes unchanged
        key, cut, digits = _split(raw, len(raw))
        if not _may_be_kept(head, raw, cut, digits):
            # A handshake; unusual white space; the words inside another field: planned whole, each time.
            return self._plan(head, target, -1), b""
        plan = self._plan(head, target, cut)
        self._plans.store(key, plan)
        return plan, digits

    def recognise(self, head: RequestHead) -> None:
        """Check a request before any page of the gateway. Raises GatewayError if it needs a key and has none."""
        self.keys.recognise(head, upstream_has_key=self._upstream_has_key)

    def identify(self, head: RequestHead, *, upstream_has_key: bool, scope: str) -> Identity:
        """Return the caller of one of our own routes. Raises GatewayError."""
        return self.keys.identify(head, upstream_has_key=upstream_has_key, scope=scope)

    def close(self) -> None:
        """Close idle upstream connections; busy ones close when their transaction ends. Idempotent."""
        for group in self.groups:
            group.close()

    def _remember(self, head: RequestHead, raw: bytes) -> None:
        """Remember a head of the context lane if its key is known: unknown callers take no room from others."""
        key, cut, digits = _split(raw, len(raw))
        if _may_be_kept(head, raw, cut, digits):
            with suppress(GatewayError):
                self.recognise(head)
                self._heads.store(key, KnownHead(head, cut, digits))

    def _plan(self, head: RequestHead, target: bytes, cut: int) -> Plan:
        plan = self._build_untraced(head, target, cut)
        return plan if self.tracer is None else traced(plan, self.tracer, head)

    def _build_untraced(self, head: RequestHead, target: bytes, cut: int) -> Plan:
        route, plain = self._way(target)
        group, limiter = self.groups[route.index], self._limiter
        make = partial(self._build_plan, head, target, cut, route, plain)
        path = route.in_api(get_path(plain))
        twice, is_computed = may_run_twice(head, path), computes(head, path)

        def build_ways(group: Group) -> Ways:
            first = make(group, group.members[0])
            sticky = first.caller.together((head.value(_CONVERSATION) or b"").strip())
            return Ways(group, first, make, twice=twice, sticky=sticky, computes=is_computed)

        if route.by_model and (head.length or head.chunked):
            groups = (group, *(served for served, _ in self._served))
            plan = self._with_gathering(self._first_allowed(make, groups), groups, by_model=True)
            plan = replace(plan, splice=_kind(ByModel, plan.meter), by_model=ModelWays(group, self._served, build_ways))
            return self._with_limits(plan, is_open=limiter is not None and limiter.has_targets)
        if group.plain:
            own = () if limiter is None else limiter.of_upstream(group.name)
            return self._with_limits(self._with_gathering(make(group, group.members[0]), (group,)), own)
        ways = build_ways(group)
        plan = self._with_gathering(ways.get_plan(group, group.members[0]), (group,))
        kind = Balanced if group.rules.hedge_s is None else Hedging
        plan = replace(plan, splice=_kind(kind, plan.meter), ways=ways)
        has_more = limiter is not None and any(limiter.has_upstream(one.name) for one in (group, *ways.fallbacks))
        return self._with_limits(plan, is_open=has_more)

    def _with_gathering(self, plan: Plan, groups: Sequence[Group], *, by_model: bool = False) -> Plan:
        """Return the plan with how much of a body is held, where its requests take places that others want.

        `groups` are the upstreams that they may be for, `by_model`: by the models that their bodies name.
        """
        reached = {*groups, *chain.from_iterable(group.fallbacks for group in groups)}
        takes = any(group.has_places for group in reached)
        if not takes and self._limiter is not None:
            names = (group.name for group in reached)
            takes = self._limiter.shares(plan.caller, names, by_model=by_model)
        return replace(plan, gathers=groups[0].kept_bytes) if takes else plan

    def _with_limits(self, plan: Plan, rules: Sequence[LimitRule] = (), *, is_open: bool = False) -> Plan:
        """Return the plan with the limits of its requests: the caller's limits, and `rules`.

        `is_open`: there are more, of the upstream to which a request goes, or of the model that its body names.
        Raises GatewayError (overloaded): they cannot be counted.
        """
        limiter = self._limiter
        if limiter is None:
            return plan
        rules = (*limiter.of_caller(plan.caller), *rules)
        if not rules and not is_open:
            return plan
        admission = Admission(limiter, rules, takes_tokens=plan.meter is not None and plan.meter.asks)
        return replace(plan, splice=limited(plan.splice), admission=admission)

    def _first_allowed(self, make: Callable[[Group, Member], Plan], groups: Sequence[Group]) -> Plan:
        """Return the plan for the first upstream that the caller may use. Raises GatewayError: there is none."""
        for group in groups[:-1]:
            try:
                return make(group, group.members[0])
            except GatewayError as error:
                if error.code != "upstream_not_allowed":
                    raise
        return make(groups[-1], groups[-1].members[0])

    def _meter(self, caller: Caller, head: RequestHead, path: bytes) -> Meter | None:
        """Return the meter of requests whose tokens are recorded, or count for limits; None: they have no use."""
        recorded = self._recorded
        if recorded is None and self._limiter is not None and self._limiter.counts_tokens(caller):
            recorded = _nowhere
        if recorded is None:
            return None
        makes = may_make(head.method, has_body=head.has_body)
        return meter_of(recorded, self._unread.undecoded, makes=makes, path=path)

    def _build_plan(
        self, head: RequestHead, target: bytes, cut: int, route: Route, plain: bytes, group: Group, member: Member
    ) -> Plan:
        """Return the plan of a request at one endpoint. `plain` is its target without `/context`."""
        pool = member.pool
        endpoint = pool.endpoint
        onward = route.rewritten(plain, endpoint.base_path)
        identity = self._caller(head, target, upstream_has_key=endpoint.api_key is not None)
        identity.caller.check_upstream(endpoint.name)
        _check_models(identity.caller)
        without = TRACE_FIELDS if self.tracer is not None and self.tracer.passthrough else frozenset[bytes]()
        before, after = upstream_head(head, onward, endpoint, identity, without=without)
        if cut < 0 and head.length is not None:
            before, after = before + (head.value(b"content-length") or b"") + after, b""
        prefix = CONTEXT_BASE if target.startswith(CONTEXT_BASE) else route.prefix
        shared = self.door.find_shared_origin(head) is not None
        tally = self._metrics.route(prefix.decode(), "passthrough")
        meter = self._meter(identity.caller, head, get_path(target))
        return Plan(
            splice=_kind(Splice, meter),
            pool=pool,
            route=tally,
            codes=tally.codes(head.method.decode()),
            upstream=group.tally,
            secret=maskable(endpoint.api_key),
            caller=identity.caller,
            key=identity.key,
            watched=identity.key is not None and self.keys.is_watched(identity.key),
            method=head.method,
            path=get_path(target),
            before=before,
            after=after,
            cut=cut,
            length=head.length or 0,
            chunked=head.chunked,
            minor=head.minor,
            keep_alive=head.keep_alive,
            expects_continue=head.expects_continue,
            websocket=head.websocket,
            repeatable=may_repeat(head, route.in_api(get_path(plain))),
            plain=head.keep_alive and head.method != b"HEAD" and not head.websocket and not shared,
            sharing=self.door.get_cors_fields(head),
            shared=shared,
            endpoint=None if group.plain else member.name,
            meter=meter,
            # A span records the tokens, so nothing waits where traces are on.
            unread=self._unread if meter is not None and meter.waits and self.tracer is None else None,
        )

    def _way(self, target: bytes) -> tuple[Route, bytes]:
        """Return the route of a target, and the target as it is below `/v1`. Raises GatewayError (unknown_route)."""
        plain = target.removeprefix(b"/context") if target.startswith(CONTEXT_BASE) else target
        route = self._routes.match(plain)
        if plain is not target and self.groups:
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

    def _caller(self, head: RequestHead, target: bytes, *, upstream_has_key: bool) -> Identity:
        """Return the caller of a request that passes through. Raises GatewayError."""
        if is_plain(target):
            try:
                return self.keys.identify(head, upstream_has_key=upstream_has_key, scope="context")
            except GatewayError as error:
                if error.code != "scope_missing":
                    raise
        return self.keys.identify(head, upstream_has_key=upstream_has_key, scope="passthrough")


def _kind(kind: type[Splice], meter: Meter | None) -> type[Splice]:
    """Return the class of transactions of this kind, which is another one where usage is read."""
    return kind if meter is None else METERED[kind]


def _nowhere(*_: object) -> None:
    """Record nothing: the tokens are for limits alone."""


def _check_models(caller: Caller) -> None:
    """Raise GatewayError (model_not_allowed) for a key that is bound to models, without reading a whole body.

    What `by_model` finds chooses an upstream and proves nothing: a body may name its model twice.
    """
    if caller.bounds.models:
        raise GatewayError(
            "model_not_allowed",
            "This gateway key is bound to models, and passthrough does not check which model a request is for: use the "
            "context lane (the base URL '/context/v1'), or another key.",
        )


def _may_be_kept(head: RequestHead, raw: bytes, cut: int, digits: bytes) -> bool:
    """Return whether a head stands for all that differ in the digits at `cut`: no handshake, and a length as usual."""
    if b"upgrade" in head.connection:
        return False
    return cut < 0 or (digits.isdigit() and raw[:cut][-len(_LENGTH_FIELD) :].lower() == _LENGTH_FIELD)


def _split(data: bytes, end: int) -> tuple[bytes, int, bytes]:
    """Return the head `data[:end]` without the digits of its Content-Length, their place (-1: none), and the digits.

    Two heads with an equal key and an equal place differ in these digits only.
    """
    for needle in _NEEDLES:
        at = data.find(needle, 0, end)
        if at >= 0:
            at += len(needle)
            stop = data.find(b"\r\n", at, end)
            if stop < 0:
                stop = end
            return data[:at] + data[stop:end], at, data[at:stop]
    return data[:end], -1, b""
