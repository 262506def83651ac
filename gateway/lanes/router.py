"""The spine of one configuration: look at the door, match the route, authenticate, classify, and plan.

A reload builds another Router. Plans are stored by the exact bytes they were made from, so a revoked key or a changed
route cannot live on in them.

Theory of operation. Clients send the same head again and again, and only the digits of Content-Length differ. So the
whole decision about a head is made once and remembered as a `Plan`. For example, these two heads share one plan:

    POST /v1/chat/completions HTTP/1.1 | Host: gw | Content-Length: 512 | ...
    POST /v1/chat/completions HTTP/1.1 | Host: gw | Content-Length: 73 | ...

A head with another key, another path or another order of fields has another plan.

1. `find_plan` cuts the digits out (`_split_length_digits`) and looks the rest up. The key is all other bytes, so an
   equal key means an equal caller, route and framing. `cut`, the place of the digits, must be equal as well, and the
   digits must be 1 to 18 decimal digits. The head is not parsed.
2. If there is no plan, `decide` parses the head and calls `route`. That checks in this order: method, preflight,
   door (for every request only where there are no keys), and lane. Then, for our own pages, door and method, and for a
   passthrough, route and caller. Every refusal is a GatewayError.
3. `route` returns None for our own pages and for the context lane. They are never planned: aiohttp serves them. But a
   head of the context lane is remembered as it was read (`KnownHeads`), cut in the same way, if its key is one of ours.
   `read_head` returns it again for an equal one. What follows from its fields is found out once (`RequestHead.once`).
   Whether its key may be used now is asked each time (`KeyRing.recognise`, `identify`).
4. A passthrough request is planned (`PlanBuilder`): caller, upstream, and the head for the upstream in two parts around
   the digits. `PlanCache` stores it within bounded memory, and drops the oldest first.

Plans that are made each time, and never stored: a handshake (`Connection: upgrade`), and a head in which the first
`ontent-length: ` is not the field itself, or is not spelled in the usual way. Such a plan has `cut` -1, so the length
stands in the head as it came.

Dangers.
- A plan that outlives its reason. Nothing in it may depend on time, or on anything besides the head and this
  configuration. Refusals are never stored. Limits that do change (draining, too many requests) are checked by the
  connection, outside of plans. A key that ends, is bound to networks or can be revoked is looked at each time that a
  plan of its is used (`Policy.watched`).
- Digits from a wrong place. `X-Note: content-length: 5` contains the needle. `route` compares the bytes before the
  digits with a whole field name at the beginning of a line before it stores a plan.
- Two fields with a length. Such a head is refused (RFC 9110 section 8.6 allows that), so it never gets a plan. A stored
  head with a single Content-Length cannot gain a second one, because the key would differ.

https://www.rfc-editor.org/rfc/rfc9110#section-8.6
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.auth.host_guard import HostGuard
from gateway.auth.keyring import Identity, KeyRing, Wire, get_peer_address
from gateway.contracts.errors import GatewayError, build_not_allowed_error
from gateway.contracts.tracing.tracer import Tracer
from gateway.http.request_head import HeadLimits, RequestHead, parse_request_head
from gateway.lanes.classify import classify
from gateway.lanes.client import ClientTimeouts
from gateway.lanes.head_cache import KnownHead, KnownHeads
from gateway.lanes.passthrough.observers.observer import PassthroughFeature
from gateway.lanes.passthrough.plan import Plan
from gateway.lanes.passthrough.plan_builder import PlanBuilder
from gateway.lanes.passthrough.plan_cache import PlanCache
from gateway.lanes.routes import Route, RouteTable, get_path, resolve_alias
from gateway.telemetry.metrics import Metrics
from gateway.upstream.group import Group

#: This page is open to every client, under every host name: it reveals nothing (Claude Code sends `HEAD /` first).
ROOT = b"/"
_OWN_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_SPELLED = frozenset(method.encode() for method in _OWN_METHODS)
_NEEDLES = (b"ontent-Length: ", b"ontent-length: ")
_LENGTH_FIELD = b"\r\ncontent-length: "


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptLimits:
    """The bounds of what is accepted at once (configuration: `limits`)."""

    head: HeadLimits = field(default_factory=HeadLimits)
    connections: int = 10000
    concurrent: int | None = None


class RouteDecision(NamedTuple):
    """The way of a head: refused with an `error`, planned, or (neither) for our own pages and the context lane."""

    head: RequestHead
    plan: Plan | None = None
    digits: bytes = b""
    error: GatewayError | None = None


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
        features: Sequence[PassthroughFeature] = (),
        tracer: Tracer | None = None,
    ) -> None:
        """`context_upstream` is the index of the upstream that the configuration names for the context lane.

        `models` are the patterns of each upstream, for routes by model. `features` observe passthrough exchanges.
        `tracer` makes the traces of our own pages; None: there are none.
        """
        self.groups = tuple(groups)
        self._upstream_has_key = not groups or any(group.has_key for group in groups)
        self.door = door
        self.limits = limits
        self.timeouts = timeouts
        self._routes = RouteTable(routes)
        self.keys = keys
        self._own_paths = frozenset(own_paths)
        self.tracer = tracer
        self._builder = PlanBuilder(
            routes=self._routes,
            groups=self.groups,
            served=tuple((group, patterns) for group, patterns in zip(groups, models, strict=False) if patterns),
            keys=keys,
            door=door,
            metrics=metrics,
            features=features,
            context_upstream=context_upstream,
        )
        self._plans = PlanCache()
        self._by_head = self._plans.by_head
        self._heads = KnownHeads()

    def find_plan(self, data: bytes, end: int, wire: Wire) -> tuple[Plan, bytes] | None:
        """Return the plan for the head `data[:end]` (no empty line) if an equal one was seen, and its digits."""
        key, cut, digits = _split_length_digits(data, end)
        plan = self._by_head.get(key)
        if plan is None or plan.head.cut != cut or (cut >= 0 and not (digits.isdigit() and len(digits) <= 18)):
            return None
        key_in_use = plan.target.identity.key if plan.policy.watched else None
        if key_in_use is not None and not self.keys.is_key_current(key_in_use, wire):
            self._plans.drop(key)
            return None
        return plan, digits

    def decide(self, data: bytes, end: int, wire: Wire) -> RouteDecision:
        """Return what becomes of the head `data[:end]`. Raises GatewayError, unless it is well-formed."""
        head, is_known = self.read_head(data, end, wire)
        if is_known:
            return RouteDecision(head)
        try:
            found = self.route(head, data[:end])
        except GatewayError as error:
            return RouteDecision(head, error=error)
        return RouteDecision(head) if found is None else RouteDecision(head, *found)

    def read_head(self, data: bytes, end: int, wire: Wire) -> tuple[RequestHead, bool]:
        """Return the head `data[:end]` (no empty line), and whether an equal one went to the context lane.

        Then this one goes there, too. Raises GatewayError with the status to answer.
        """
        key, cut, digits = _split_length_digits(data, end)
        known = self._heads.by_head.get(key)
        if known is None or known.cut != cut or (cut >= 0 and not (digits.isdigit() and len(digits) <= 18)):
            return parse_request_head(data[: end + 4], self.limits.head, peer=get_peer_address(wire)), False
        return known.match_head(digits, get_peer_address(wire)), True

    def route(self, head: RequestHead, raw: bytes) -> tuple[Plan, bytes] | None:
        """Return the plan for a head (`raw`: its bytes without the empty line) and its digits; None for our own routes.

        Raises GatewayError with the answer to give instead.
        """
        if head.method in (b"CONNECT", b"TRACE") or head.target == b"*":
            raise build_not_allowed_error(
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
                raise build_not_allowed_error(text, _OWN_METHODS)
            if mode == "context":
                self._remember_head(head, raw)
            return None
        target = meant if self._routes.match(head.target) is None else head.target  # a configured path goes unchanged
        key, cut, digits = _split_length_digits(raw, len(raw))
        if not _is_cacheable(head, raw, cut, digits):
            # A handshake; unusual white space; the words inside another field: planned whole, each time.
            return self._builder.build(head, target, -1), b""
        plan = self._builder.build(head, target, cut)
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

    def _remember_head(self, head: RequestHead, raw: bytes) -> None:
        """Cache a head of the context lane if its key is known: unknown callers get no memory."""
        key, cut, digits = _split_length_digits(raw, len(raw))
        if _is_cacheable(head, raw, cut, digits):
            with suppress(GatewayError):
                self.recognise(head)
                self._heads.store(key, KnownHead(head, cut, digits))


def _is_cacheable(head: RequestHead, raw: bytes, cut: int, digits: bytes) -> bool:
    """Return whether a head stands for all that differ in the digits at `cut`: no handshake, and a length as usual."""
    if b"upgrade" in head.connection:
        return False
    return cut < 0 or (digits.isdigit() and raw[:cut][-len(_LENGTH_FIELD) :].lower() == _LENGTH_FIELD)


def _split_length_digits(data: bytes, end: int) -> tuple[bytes, int, bytes]:
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
