"""Plans by the bytes of heads, as many as fit into a bounded part of the memory; the oldest go first."""

from gateway.lanes.head_cache import HeadCache
from gateway.lanes.passthrough.plan import Plan

#: Memory for plans. With heads of 600 bytes that is 7,000 clients.
PLANS_BYTES = 16 << 20
#: The size of a plan besides its head, which it contains twice: as received, and as forwarded.
PLAN_BYTES = 1100
#: The size of what a plan has for its observers.
OBSERVERS_BYTES = 1100


class PlanCache(HeadCache[Plan]):
    """Remembers plans of passthrough requests."""

    def _get_room_bytes(self) -> int:
        return PLANS_BYTES

    def _estimate_bytes(self, key: bytes, kept: Plan) -> int:
        """Return the bytes of a plan. One with a choice has the head it was made from, and a target for each place."""
        one = 2 * len(key) + PLAN_BYTES + (0 if kept.observers is None else OBSERVERS_BYTES)
        return one if kept.dispatcher is None else one * (3 + kept.dispatcher.most_targets)
