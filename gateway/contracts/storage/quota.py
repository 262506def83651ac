"""The shares of limits that several gateways have, and the store's protocol for them.

A limit is an amount under a name. Each gateway has a share of it and counts for itself within that. The shares together
are never more than the limit, so neither is what the gateways use. All figures of a request are absolute: to send one
again, or to lose its answer, changes nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

#: A gateway that was silent for so long admits nothing (by its own clock), and is gone (by that of the store).
QUOTA_LEASE_S: Final = 5.0
QUOTA_GONE_S: Final = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRequest:
    """The figures of a gateway for a limit: what it has, uses and wants.

    `held` is the share that it keeps now: it has admitted nothing beyond, or it could not help it. `used` is the part
    of it that is used. `wanted` is the share that it would like, of which it needs `needed`: requests wait for that.
    `base` is what is used and in no gateway's share. `lapse_s` is for how long a share counts whose gateway is gone.
    """

    name: str
    limit: int
    base: int = 0
    held: int
    used: int
    wanted: int
    needed: int
    lapse_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGrant:
    """The share of a gateway, of which it may use all from now on.

    `free` is what no gateway has; below 0: all of them together have more than the limit, which was lowered. `used` is
    what others use of their shares, and `spare` what they have beyond that.
    """

    name: str
    share: int
    free: int
    used: int
    spare: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAnswer:
    """The grants in the order of the requests, how many gateways are at work, and what others lack.

    `lacking` are names of limits of which this gateway has a share, and another one needs more than it has.
    """

    grants: Sequence[ShareGrant]
    gateways: int
    lacking: Collection[str]


class QuotaStore(Protocol):
    """The store's side of limits that gateways share."""

    async def share_quota(
        self, gateway: str, requests: Sequence[ShareRequest], *, turn: int, now_s: float
    ) -> QuotaAnswer:
        """Write what a gateway holds of some limits, and grant it what it wants, as far as that is free: in one step.

        A share is `held`, or more. A limit that the gateway neither holds nor wants is forgotten. Without requests, the
        gateway only reports that it is at work.

        `turn` grows with each call of the gateway. A call that was given up may run behind a later one: it raises
        ConflictError and changes nothing. `now_s` is the Unix time of the gateway's machine. A store that machines
        share takes its own.
        """
        ...
