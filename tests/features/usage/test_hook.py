"""The usage of a call in the context lane is recorded under its caller."""

from gateway.features.usage.hook import UsageHook
from gateway.usage.tokens import RequestUsage, TokenCounts
from tests.agent.models import exchange


def test_usage_of_a_call_is_recorded_under_its_caller_and_lane() -> None:
    heard: list[tuple[object, ...]] = []
    usage, asked = RequestUsage(TokenCounts(5, output=2)), exchange()
    UsageHook(lambda *facts: heard.append(facts)).record_usage(asked, usage, model="m", upstream="up", times=None)
    assert heard == [(usage, asked.caller.name, asked.caller.tenant, "m", "up", "context", None)]
