"""The features that follow passthrough exchanges, in the order in which their observers hear of a phase."""

from gateway.contracts.tracing.tracer import Tracer
from gateway.lanes.passthrough.observers.limit_observer import LimitFeature
from gateway.lanes.passthrough.observers.observer import Feature
from gateway.lanes.passthrough.observers.trace_observer import TraceFeature
from gateway.lanes.passthrough.observers.usage_batch import UsageBatch
from gateway.lanes.passthrough.observers.usage_observer import UsageFeature
from gateway.limits.limiter import Limiter
from gateway.usage.tokens import Recorded


def collect_features(
    *, recorded: Recorded | None, batch: UsageBatch, limiter: Limiter | None, tracer: Tracer | None
) -> tuple[Feature, ...]:
    """Return the features of a configuration. Usage is always among them: limits may need the tokens of an answer."""
    usage = UsageFeature(recorded, batch, limiter, reads_together=tracer is None)
    found: list[Feature] = [usage]
    if limiter is not None:
        found.append(LimitFeature(limiter, reads_usage=usage.reads))
    if tracer is not None:
        found.append(TraceFeature(tracer))
    return tuple(found)
