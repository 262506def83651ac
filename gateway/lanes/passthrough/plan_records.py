"""The records that a plan is made of: the head of the request, the endpoint that it goes to, and how it is treated.

The parts of the lane that follow a request know these records only, and no plan.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.auth.keyring import Identity
from gateway.telemetry.metrics import RouteTally
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedHead:
    """The facts of the client's head, but for the digits of its Content-Length.

    Those stand at `cut` in the head; with `cut` -1 the body has `length` bytes. A chunked body has no `length`.
    """

    method: bytes
    path: bytes
    minor: int
    length: int | None
    cut: int
    keep_alive: bool
    expects_continue: bool
    websocket: bool


@dataclass(frozen=True, slots=True, eq=False)
class PlanTarget:
    """The endpoint that a request goes to, with the head that it gets and the caller as that endpoint's rules find it.

    The head is in two parts around the digits of Content-Length; the second is empty where there are no digits.
    A target belongs to one plan: plans of different routes may have the same head for the same endpoint.
    """

    group: Group
    member: Member
    head: tuple[bytes, bytes] = field(repr=False)
    identity: Identity = field(repr=False)

    @property
    def endpoint(self) -> str | None:
        """Return the name of the endpoint in its upstream; None: the upstream is this endpoint."""
        return None if self.group.plain else self.member.name


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """The counters of the requests with one route and one method."""

    route: RouteTally
    codes: defaultdict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolicy:
    """The treatment of a plan's requests, wherever they go.

    `plain`: nothing about the request asks for more than copying its response. `watched`: the key is looked at before
    each use of the plan (`KeyRing.is_key_current`). `repeatable`: it may be sent again over a fresh connection.
    `held_bytes`: the request begins when its body is whole, or longer than this; None: at once. `sharing` are fields of
    our own errors, for browsers.
    """

    counts: RequestCounts
    plain: bool
    watched: bool
    repeatable: bool
    held_bytes: int | None
    sharing: Mapping[str, str]

    @property
    def response_fields(self) -> Mapping[str, str]:
        """Return the fields that a page of another origin needs to read the upstream's response."""
        return self.sharing if "Access-Control-Allow-Origin" in self.sharing else {}
