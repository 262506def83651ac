"""Plans by the bytes of their heads, as many as fit into a bounded part of the memory; the oldest go first."""

from itertools import islice

from gateway.lanes.plan import Plan

#: Memory for plans, and the largest head worth keeping. With heads of 600 bytes that is 7,000 clients.
PLANS_BYTES = 16 << 20
HEAD_LIMIT_BYTES = 4096
#: The size of a plan besides its head, which it contains twice: as received, and as forwarded.
PLAN_BYTES = 1100
#: This share goes at once, so that room is not made for each new one.
SHARE = 16


class Plans:
    """Remembers plans; `by_head` is always the same dict. One that goes while it is in use is only made again."""

    def __init__(self) -> None:
        self.by_head: dict[bytes, Plan] = {}
        self._bytes = 0

    def drop(self, key: bytes) -> None:
        """Forget a plan that may not be used any more."""
        plan = self.by_head.pop(key, None)
        if plan is not None:
            self._bytes -= _size(key, plan)

    def store(self, key: bytes, plan: Plan) -> None:
        """Remembers a plan, unless its head is too large."""
        if len(key) > HEAD_LIMIT_BYTES or key in self.by_head:
            return
        self._bytes += _size(key, plan)
        if self._bytes > PLANS_BYTES:
            for oldest in tuple(islice(self.by_head, len(self.by_head) // SHARE + 1)):
                self._bytes -= _size(oldest, self.by_head.pop(oldest))
        self.by_head[key] = plan


def _size(key: bytes, plan: Plan) -> int:
    """Return the bytes of a plan; one with several ways has the head it was made from, and a plan for each."""
    one = 2 * len(key) + PLAN_BYTES
    many = plan.ways or plan.by_model
    return one if many is None else one * (3 + many.most_plans)
