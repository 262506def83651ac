"""The phases of the context lane, as a feature sees them: a run begins, it calls models, its answer has a head.

A feature has its hook in `hook.py` of its folder (`gateway/features/`). The lane and the model call know no feature.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError, UndecidedError
from gateway.contracts.exchange import Exchange
from gateway.usage.tokens import RequestUsage, Times

T = TypeVar("T")


class CallObserver:
    """The phases of one call of a model, which do nothing by themselves."""

    def on_model(self, model: str) -> None:
        """Before a model is asked, perhaps in place of the one before. Raises GatewayError: it is passed over."""

    def on_upstream(self, upstream: str) -> None:
        """Before an upstream is asked, perhaps in place of the one before. Raises GatewayError: it is passed over."""

    def on_try_ended(self, tokens: int) -> None:
        """After a request to an upstream, which used so many tokens."""

    def on_closed(self) -> None:
        """After the end of the call. It may come twice."""


class RunAdmission(NamedTuple):
    """The leave for a run to begin. `close` is called when it is over; `over_limit` goes into its answer's head."""

    close: Callable[[], object]
    over_limit: str | None = None


class ContextHook:
    """A feature of one configuration, as the context lane sees it. By itself it does nothing."""

    def admit_run(self, exchange: Exchange, *, calls_model: bool) -> RunAdmission | None:
        """Return the leave for a run, or None: it needs none. Raises GatewayError: it is refused."""
        del exchange, calls_model
        return None

    def build_answer_fields(self, caller: Caller) -> Mapping[str, str]:
        """Return header fields for an answer of a run."""
        del caller
        return {}

    def observe_call(self, exchange: Exchange) -> CallObserver | None:
        """Return the observer of a call, or None. Raises GatewayError: the call is refused."""
        del exchange
        return None

    def record_usage(
        self, exchange: Exchange, usage: RequestUsage, *, model: str, upstream: str, times: Times | None
    ) -> None:
        """Take the usage of a request to an upstream, or of a call that went to none."""
        del exchange, usage, model, upstream, times


def observe_call(hooks: Iterable[ContextHook], exchange: Exchange) -> Sequence[CallObserver]:
    """Return the observers of a call. Raises GatewayError: one refuses it, and those before it are closed."""
    found: list[CallObserver] = []
    try:
        for hook in hooks:
            if (one := hook.observe_call(exchange)) is not None:
                found.append(one)  # noqa: PERF401  # a generator costs more than the call
    except GatewayError:
        for observer in found:
            observer.on_closed()
        raise
    return found


def admit_run(hooks: Iterable[ContextHook], exchange: Exchange, *, calls_model: bool) -> Sequence[RunAdmission]:
    """Return the leaves for a run. Raises GatewayError: one refuses it, and those before it are given back."""
    found: list[RunAdmission] = []
    try:
        for hook in hooks:
            if (one := hook.admit_run(exchange, calls_model=calls_model)) is not None:
                found.append(one)  # noqa: PERF401  # a generator costs more than the call
    except GatewayError:
        for admission in found:
            admission.close()
        raise
    return found


async def wait_for_room(reserve: Callable[[], T]) -> T:
    """Return the result of `reserve`, once it is known whether there is room. Raises the error that it raises then."""
    while True:
        try:
            return reserve()
        except UndecidedError as undecided:
            await undecided.answered
