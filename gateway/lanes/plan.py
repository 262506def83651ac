"""The plan of a passthrough request: the head that goes upstream, and all that is known before its body comes.

A plan depends on the head (but for the digits of its Content-Length) and on the configuration, so one plan serves every
request with an equal head: clients send the same one again and again.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import TYPE_CHECKING, Final

from gateway.auth.credentials import CREDENTIAL_HEADERS, GATEWAY_HEADER, SUBPROTOCOLS, clean_subprotocols, clean_target
from gateway.auth.keyring import Identity, Key
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.model_names import is_listed_model
from gateway.http.fields import CREDENTIALS, HOP_BY_HOP, Field, get_hop_fields
from gateway.http.request_head import RequestHead
from gateway.lanes.classify import CONTEXT_PREFIX
from gateway.telemetry.metrics import RouteTally, UpstreamTally
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group
from gateway.upstream.pool import Pool

if TYPE_CHECKING:
    from gateway.lanes.passthrough.metered import Meter
    from gateway.lanes.passthrough.splice import Splice
    from gateway.lanes.passthrough.traced import PlanTrace
    from gateway.lanes.passthrough.unread import Unread
    from gateway.limits.admission import Admission

#: Idempotent by RFC 9110 section 9.2.2: may be sent again when a reused connection turned out to be closed.
REPEATABLE = frozenset((b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"))
#: POST requests that only compute an answer from their body. Paths that store or change something by it are left out: a
#: response can be a turn of a conversation, a message of a thread becomes a part of it.
_COMPUTES = re.compile(
    rb"(?:/openai)?/(?:v1|deployments/[^/]+)/(?:chat/completions|completions|embeddings|messages|"
    rb"messages/count_tokens|moderations|rerank|audio/(?:speech|transcriptions|translations))/?"
)


#: A plan remembers the ways of so many models, with names of so many characters: clients use a few of them.
KNOWN_MODELS: Final = 8
KNOWN_CHARS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A passthrough request, decided.

    The upstream head is `before` + digits + `after`, where the digits of Content-Length stand at `cut` in the client's
    head; with `cut` -1 the head is `before` alone and the body has `length` bytes. `plain`: nothing about the request
    needs more than copying the answer. `key` is that of `caller`, if it has one; `watched`: it is looked at before each
    use of the plan (`KeyRing.still_is`). `sharing`: fields of the gateway's own errors, for browsers; `shared`: the
    request is from a page of an origin in `cors`, so the upstream's answer gets them, too. `splice` is the class of its
    transactions: what a configuration adds to passthrough is a separate class, and costs nothing where the router does
    not choose it. `endpoint` is the name of the endpoint in its upstream, and `ways` lead to all of them; None: the
    request can go to this one only. `by_model`: the body decides the ways; the plan itself then only describes how to
    read the request. `gathers`: its requests take places that others want, so a body of at most so many bytes is whole
    before one begins; None: they take none. `meter` is for the usage, and `unread` are the answers that wait to be read
    for it; None: answers to this request do not wait. `admission` is for the limits, `trace` for traces.
    """

    splice: "type[Splice]"
    pool: Pool
    route: RouteTally
    codes: defaultdict[int, int]
    upstream: UpstreamTally
    secret: bytes | None = attribute(repr=False)
    caller: Caller
    key: Key | None
    watched: bool
    method: bytes
    path: bytes
    before: bytes
    after: bytes
    cut: int
    length: int
    chunked: bool
    minor: int
    keep_alive: bool
    expects_continue: bool
    websocket: bool
    repeatable: bool
    plain: bool
    sharing: Mapping[str, str]
    shared: bool
    endpoint: str | None
    ways: "Ways | None" = None
    by_model: "ModelWays | None" = None
    gathers: int | None = None
    meter: "Meter | None" = None
    unread: "Unread | None" = None
    admission: "Admission | None" = None
    trace: "PlanTrace | None" = None


class Ways:
    """The ways of a request to the endpoints of its upstream and of the fallbacks.

    A plan for each is made when it is first used, and kept; `first` belongs to the first endpoint. `twice`: sending the
    request twice does no harm. `computes`: see `Tries`. `sticky`: what belongs at the same endpoint
    (`balance: sticky`). `fallbacks` are the fallbacks that the caller may use.
    """

    __slots__ = ("_make", "_plans", "computes", "fallbacks", "group", "sticky", "twice")

    def __init__(
        self,
        group: Group,
        first: Plan,
        make: Callable[[Group, Member], Plan],
        *,
        twice: bool,
        sticky: bytes,
        computes: bool = False,
    ) -> None:
        self.group = group
        self.twice = twice
        self.computes = computes
        self.sticky = sticky
        self._make = make
        self._plans: dict[Member, Plan] = {group.members[0]: first}
        self.fallbacks = tuple(fallback for fallback in group.fallbacks if self._is_allowed(fallback))

    def get_plan(self, group: Group, member: Member) -> Plan:
        """Return the plan of the request at an endpoint."""
        plan = self._plans.get(member)
        if plan is None:
            plan = self._plans[member] = self._make(group, member)
        return plan

    @property
    def most_plans(self) -> int:
        """Return how many plans there can be."""
        return sum(len(group.members) for group in (self.group, *self.fallbacks))

    def _is_allowed(self, group: Group) -> bool:
        try:
            self.get_plan(group, group.members[0])
        except GatewayError:
            return False
        return True


class ModelWays:
    """The ways of a request by its model. `served` are upstreams with the patterns of their models, in their order.

    A request for a model that none of them names goes the `usual` way.
    """

    __slots__ = ("_found", "_known", "_served", "_ways_to", "usual")

    def __init__(
        self, usual: Group, served: Sequence[tuple[Group, tuple[str, ...]]], ways_to: Callable[[Group], Ways]
    ) -> None:
        self.usual = usual
        self._served = served
        self._ways_to = ways_to
        self._found: dict[Group, Ways] = {}
        self._known: dict[str | None, Ways] = {}  # by model, for the first few of them

    @property
    def most_plans(self) -> int:
        """Return how many plans there can be, without the fallbacks' plans, which mostly are among them."""
        return sum(len(group.members) for group in {self.usual, *(group for group, _ in self._served)})

    def get_ways(self, model: str | None) -> Ways:
        """Return the ways of a request for a model; None: it names none. Raises GatewayError: the caller may not."""
        ways = self._known.get(model)
        if ways is not None:
            return ways
        group = self.usual
        if model is not None:
            named = (g for g, patterns in self._served if is_listed_model(model, patterns))
            group = next(named, group)
        ways = self._found.get(group)
        if ways is None:
            ways = self._found[group] = self._ways_to(group)
        if len(self._known) < KNOWN_MODELS and len(model or "") <= KNOWN_CHARS:
            self._known[model] = ways
        return ways


def may_repeat(head: RequestHead, path: bytes) -> bool:
    """Return whether a request goes over a fresh connection when a reused one is lost before it answers.

    These are idempotent methods (RFC 9110 section 9.2.2), and requests that only compute. `path` is as the API has it
    (`Route.in_api`).
    """
    return head.method in REPEATABLE or computes(head, path)


def computes(head: RequestHead, path: bytes) -> bool:
    """Return whether a request only computes an answer from its body. `path` is as the API has it."""
    return head.method == b"POST" and _COMPUTES.fullmatch(path) is not None


def may_run_twice(head: RequestHead, path: bytes) -> bool:
    """Return whether a request that may have been carried out can be sent again without harm.

    These are requests that may be repeated (`may_repeat`), and requests that the client made safe by an
    Idempotency-Key.
    """
    return not head.websocket and (may_repeat(head, path) or bool(head.value(b"idempotency-key")))


def upstream_head(
    head: RequestHead, target: bytes, endpoint: Endpoint, identity: Identity, *, without: frozenset[bytes] = frozenset()
) -> tuple[bytes, bytes]:
    """Return the head for the upstream, in two parts around the digits of Content-Length (the second may be empty).

    It differs from the client's by hop-by-hop fields, Host, X-Context-*, keys of the gateway, and all credentials where
    the upstream has its own; all other lines are the bytes that came, in their order. `without`: names of fields that
    the gateway writes itself.
    """
    has_own = endpoint.api_key is not None
    target = clean_target(target, identity.texts, has_own=has_own)
    drop = HOP_BY_HOP | get_hop_fields(head.connection) | identity.consumed | without
    credential = b""
    if has_own:
        credential = _credential_header(head, endpoint)
        replaced = CREDENTIALS | {credential}
        # All of them, however often and in whatever case they come, and as CGI-like servers would read them.
        drop |= {f.name for f in head.fields if f.name.replace(b"_", b"-") in replaced}
    parts: list[bytes] = [b"%b %b HTTP/1.1\r\n" % (head.method, target)]
    after: list[bytes] = []
    out = parts
    if head.value(b"host") is None:
        parts.append(b"Host: %b\r\n" % endpoint.authority)
    for field in head.fields:
        if field.name == b"host":
            out.append(_with_value(field, endpoint.authority))
        elif field.name == credential:
            out.append(_with_value(field, endpoint.credential(credential)))
            credential = b""
        elif field.name == b"content-length":
            start = field.line.index(field.value, len(field.name) + 1)
            out.append(field.line[:start])
            out = after
            out.append(field.line[start + len(field.value) :])
        elif head.websocket and field.name == b"upgrade":
            out.append(b"Connection: Upgrade\r\n" + field.line)
        elif has_own and field.name == SUBPROTOCOLS and field.name not in drop:
            if (kept := clean_subprotocols(field.value)) != b"":
                out.append(_with_value(field, kept))
        elif field.name not in drop and not _is_ours(field.name):
            out.append(field.line)
    if credential:
        out.append(b"%b: %b\r\n" % (credential.title(), endpoint.credential(credential)))
    out.append(b"\r\n")
    return b"".join(parts), b"".join(after)


def _is_ours(name: bytes) -> bool:
    """Return whether a field is the gateway's own, also as CGI-like servers would read it."""
    plain = name.replace(b"_", b"-")
    return plain == GATEWAY_HEADER or plain.startswith(CONTEXT_PREFIX)


def _credential_header(head: RequestHead, endpoint: Endpoint) -> bytes:
    """Return where the upstream's key goes: as configured, else the header that the client used, else Authorization."""
    if endpoint.auth_header is not None:
        return endpoint.auth_header
    return next((name for name in CREDENTIAL_HEADERS if head.value(name) is not None), CREDENTIAL_HEADERS[0])


def _with_value(field: Field, value: bytes) -> bytes:
    """Return the field's line with another value, its name as the client wrote it."""
    return b"%b: %b\r\n" % (field.line[: len(field.name)], value)
