"""A tool call that an MCP client wants, and what makes it the same as another one."""

import pytest

from gateway.auth.keyring import Identity
from gateway.context.call_runs import CallRun, WantedCall, fingerprint_call
from gateway.contracts.caller import Caller
from gateway.contracts.exchange import CallProgress


def wanted(**facts: object) -> WantedCall:
    identity = Identity(Caller("c", "t", frozenset()), frozenset())
    given: dict[str, object] = {
        "tool": "look",
        "arguments": {"x": 1, "y": 2},
        "identity": identity,
        "client": {},
        **facts,
    }
    return WantedCall(**{**given, **facts})  # type: ignore[arg-type]


def test_call_fingerprint_ignores_client_and_argument_order() -> None:
    """Two requests with the same key and the same arguments are the same call."""
    assert fingerprint_call(wanted()) == fingerprint_call(wanted(arguments={"y": 2, "x": 1}, client={"name": "other"}))


@pytest.mark.parametrize("facts", [{"tool": "peek"}, {"user": "ann"}, {"idempotency_key": "k"}, {"arguments": {}}])
def test_call_fingerprint_depends_on_tool_user_key_and_arguments(facts: dict[str, object]) -> None:
    """Of another end user, with other arguments, or with a key of its own."""
    assert fingerprint_call(wanted(**facts)) != fingerprint_call(wanted())


def test_progress_messages_drop_control_characters() -> None:
    """A server writes them, and a terminal may show them."""
    told: list[CallProgress] = []
    run = CallRun("run_1", "t", "f", "run_1", tell=told.append)
    run.report_progress(CallProgress("ha\x1blf"))
    assert told == [CallProgress("half")]
