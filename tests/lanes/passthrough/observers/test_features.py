"""The features of a configuration, in their order."""

from limits.limiting import Workers

from gateway.contracts.allowance import Allowance
from gateway.contracts.tracing.tracer import Tracer
from gateway.lanes.passthrough.observers.features import collect_features
from gateway.lanes.passthrough.observers.limit_observer import LimitFeature
from gateway.lanes.passthrough.observers.trace_observer import TraceFeature
from gateway.lanes.passthrough.observers.usage_batch import UsageBatch
from gateway.lanes.passthrough.observers.usage_observer import UsageFeature


def test_observer_features_are_ordered_usage_limits_traces() -> None:
    """A span says the tokens that were read."""
    limiter = Workers(tenants={"t": Allowance(concurrent=1)}).limiters[0]
    tracer = Tracer(lambda _: None, share=1.0, receivers=frozenset())
    found = collect_features(recorded=None, batch=UsageBatch(), limiter=limiter, tracer=tracer)
    assert [type(one) for one in found] == [UsageFeature, LimitFeature, TraceFeature]
    off = collect_features(recorded=None, batch=UsageBatch(), limiter=None, tracer=None)
    assert [type(one) for one in off] == [UsageFeature]
