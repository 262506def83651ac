"""The usage of the context lane: a run calls its model once a round, and each request to an upstream is recorded."""

from typing import Final

from gateway.contracts.exchange import Exchange
from gateway.model.hooks import ContextHook
from gateway.usage.tokens import Recorded, RequestUsage, Times

LANE: Final = "context"


class UsageHook(ContextHook):
    """The usage of one configuration. `recorded` takes it."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded

    def record_usage(
        self, exchange: Exchange, usage: RequestUsage, *, model: str, upstream: str, times: Times | None
    ) -> None:
        caller = exchange.caller
        self._recorded(usage, caller.name, caller.tenant, model, upstream, LANE, times)
