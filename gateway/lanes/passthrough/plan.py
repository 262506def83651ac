"""The plan of a passthrough request: all that is known before its body comes.

A plan depends on the head (but for the digits of its Content-Length) and on the configuration, so one plan serves every
request with an equal head: clients send the same one again and again.
"""

from dataclasses import dataclass

from gateway.lanes.passthrough.dispatch.dispatcher import DispatcherFactory
from gateway.lanes.passthrough.observers.observer import Observers
from gateway.lanes.passthrough.plan_records import PlannedHead, PlanTarget, RequestPolicy


@dataclass(frozen=True, slots=True)
class Plan:
    """A passthrough request, decided.

    `target` is the endpoint of its first attempt, where the head alone decides that; where it does not, the first one
    that the caller may use. `dispatcher` makes what chooses the endpoints of a request; None: it goes to its target.
    `observers` make what follows one; None: no feature does.
    """

    head: PlannedHead
    target: PlanTarget
    policy: RequestPolicy
    dispatcher: DispatcherFactory | None
    observers: Observers | None
