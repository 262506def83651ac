"""The choice among the endpoints that may take a request: by weight, by load, or the same for each conversation."""

import math
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Literal

from gateway.upstream.endpoint_state import Member

Balance = Literal["weighted", "least_loaded", "sticky"]
#: So many scores are remembered, of keys of so many bytes: 2 MB.
KNOWN_SCORES: Final = 4096
KNOWN_BYTES: Final = 100


def choose(members: Sequence[Member], balance: Balance, sticky: bytes) -> Member:
    """Return one of `members`, of which there is at least one. `sticky` is what belongs together."""
    if len(members) == 1:
        return members[0]
    if balance == "sticky" and sticky:
        score = _known_score if len(sticky) <= KNOWN_BYTES else _compute_score
        return max(members, key=lambda member: score(member.name, member.weight, sticky))
    if balance == "least_loaded":
        loads = [member.load for member in members]
        least = min(loads)
        members = [member for member, load in zip(members, loads, strict=True) if load == least]
    return _pick_by_turn(members)


def _pick_by_turn(members: Sequence[Member]) -> Member:
    """Return the member whose turn it is, by weight and evenly mixed: 5, 1, 1 gives a a b a c a a (as nginx does)."""
    best, total = members[0], 0
    for member in members:
        member.current += member.weight
        total += member.weight
        if member.current > best.current:
            best = member
    best.current -= total
    return best


def _compute_score(name: str, weight: int, sticky: bytes) -> float:
    """Return the score of a member for a key: weighted rendezvous hashing.

    When one goes, its keys spread over the others and no other key moves; when it is back, they come back.
    https://www.ietf.org/archive/id/draft-ietf-bess-weighted-hrw-00.html
    """
    digest = blake2b(name.encode() + b"\0" + sticky, digest_size=8).digest()
    return -weight / math.log((int.from_bytes(digest) + 0.5) / 2.0**64)


_known_score = lru_cache(KNOWN_SCORES)(_compute_score)
