"""When a model is asked again, and which runs can go on later."""

import pytest

from gateway.agent.loop import Loop
from gateway.agent.progress import RunProgress
from gateway.agent.upstream_recovery import (
    FIRST_S,
    LONGEST_S,
    TRIES,
    build_parked_error,
    get_retry_pause_s,
    is_resumable,
)
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.storage.store import Json
from gateway.dialects.usage import TurnUsage

from .models import exchange


@pytest.mark.parametrize("code", ["upstream_error", "upstream_limited", "upstream_timeout", "upstream_unavailable"])
def test_retry_pauses_grow_and_are_limited_in_number(code: str) -> None:
    """Unless the upstream says how long it is; never longer than the run may take."""
    error = GatewayError(code, "")
    pauses = [get_retry_pause_s(error, tries=n, left_s=100) for n in range(TRIES)]
    assert pauses == sorted(pauses, key=float) and pauses[0] == FIRST_S and pauses[-1] == LONGEST_S  # type: ignore[arg-type]
    assert get_retry_pause_s(error, tries=TRIES, left_s=100) is None
    told = GatewayError(code, "", retry_after_s=7)
    assert get_retry_pause_s(told, tries=0, left_s=100) == 7
    assert get_retry_pause_s(told, tries=0, left_s=7) is None and get_retry_pause_s(error, tries=0, left_s=-1) is None


@pytest.mark.parametrize("code", ["upstream_refused", "upstream_rejected", "agent_timeout", "store_full"])
def test_permanent_upstream_errors_are_not_retried(code: str) -> None:
    """Whatever is said of a time."""
    assert get_retry_pause_s(GatewayError(code, "", retry_after_s=1), tries=0, left_s=100) is None


@pytest.mark.parametrize(
    ("code", "rounds", "is_open", "resumable"),
    [
        ("upstream_error", 1, False, True),
        ("upstream_refused", 1, False, True),
        ("upstream_rejected", 1, False, False),
        ("upstream_error", 0, False, False),
        ("upstream_error", 1, True, False),
        ("agent_timeout", 1, False, False),
    ],
)
def test_resumable_runs_have_effects_and_a_recoverable_error(
    code: str, rounds: int, resumable: bool, *, is_open: bool
) -> None:
    """Those that have done something, and whose upstream may be mended."""
    found: list[tuple[str, list[int], Json]] = [("", [0], {})] * rounds
    progress = RunProgress(TurnUsage(), rounds=found, is_open=is_open)
    loop = Loop(LoopLimits(), lambda call, call_id: pytest.fail("no call"), frozenset(), lambda: "", "run_1")
    assert is_resumable(GatewayError(code, ""), progress, loop) is resumable


@pytest.mark.parametrize(("words", "told"), [("Too many", "Too many. What"), ("Really?", "Really? What")])
def test_parked_error_ends_the_upstream_message_with_punctuation(words: str, told: str) -> None:
    """Many upstreams write no full stop."""
    assert build_parked_error(GatewayError("upstream_limited", words), exchange()).message.startswith(told)


def test_parked_error_is_final_and_names_the_resume_command() -> None:
    """How it goes on; nothing that an SDK tries by itself."""
    told = build_parked_error(GatewayError("upstream_limited", "Too many.", retry_after_s=5), exchange())
    assert told.settled and told.facts.status == 422 and told.retry_after_s is None
    assert told.message.startswith("Too many. ") and "gateway runs resume run_1" in told.message
