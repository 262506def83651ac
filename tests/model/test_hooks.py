"""Features in the context lane: what one of them refuses, the others give back."""

import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.model.hooks import CallObserver, ContextHook, RunAdmission, admit_run, observe_call
from tests.agent.models import exchange

REFUSAL = GatewayError("rate_limit_exceeded", "No more for now: try again later.", retry_after_s=1)


class Counting(ContextHook, CallObserver):
    """A hook with one place for runs and one for calls."""

    def __init__(self) -> None:
        self.runs = self.calls = 0

    def admit_run(self, exchange: Exchange, *, calls_model: bool) -> RunAdmission:
        self.runs += 1
        return RunAdmission(self.leave)

    def leave(self) -> None:
        self.runs -= 1

    def observe_call(self, exchange: Exchange) -> CallObserver:
        self.calls += 1
        return self

    def on_closed(self) -> None:
        self.calls -= 1


class Refusing(ContextHook):
    """A hook that refuses everything."""

    def admit_run(self, exchange: Exchange, *, calls_model: bool) -> RunAdmission:
        raise REFUSAL

    def observe_call(self, exchange: Exchange) -> CallObserver:
        raise REFUSAL


def test_refused_run_and_call_leave_no_place_taken() -> None:
    hook = Counting()
    with pytest.raises(GatewayError):
        admit_run((hook, Refusing()), exchange(), calls_model=True)
    with pytest.raises(GatewayError):
        observe_call((hook, Refusing()), exchange())
    assert (hook.runs, hook.calls) == (0, 0)


def test_admitted_run_and_call_keep_their_places_until_they_are_closed() -> None:
    hook = Counting()
    (admission,) = admit_run((ContextHook(), hook), exchange(), calls_model=True)
    (observer,) = observe_call((ContextHook(), hook), exchange())
    assert (hook.runs, hook.calls) == (1, 1)
    admission.close()
    observer.on_closed()
    assert (hook.runs, hook.calls) == (0, 0)


def test_hook_that_overrides_nothing_adds_no_header() -> None:
    assert ContextHook().build_answer_fields(exchange().caller) == {}
