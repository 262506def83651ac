"""Times of upstreams that contradict each other are reported with their place and what to do."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.config import ConfigError, load

CHAIN = "chains: {assistant: [{use: agent_loop, with: {timeout: 20s}}]}\n"
UPSTREAM = "upstreams: [{name: a, endpoints: [{url: 'http://a/v1', concurrent: 1}, {url: 'http://b/v1'}], %s}]"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def warnings(rules: str, more: str = "") -> Sequence[str]:
    file = Path("gateway.yaml")
    file.write_text(more + UPSTREAM % rules)
    return load(file, environ={}, flags={}).warnings


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ("breaker: {open: 10m}", r"breaker.open: 'open' \(600 s\) is longer than 'longest' \(300 s\)"),
        ("breaker: {longest: 5s}", r"breaker.longest: 'open' \(10 s\) is longer than 'longest' \(5 s\)"),
        ("breaker: {open: 6s, longest: 5s}", r"raise 'longest' to at least 'open'"),
        ("health: {timeout: 15s}", r"health.timeout: 'timeout' \(15 s\) is longer than 'interval' \(10 s\)"),
        ("health: {interval: 1s}", r"health.interval: .* lower 'timeout', or raise 'interval'"),
        ("hedge: 10m", r"hedge: is not shorter than timeouts.first_byte \(600 s\)"),
        ("hedge: 2s, timeouts: {first_byte: 2s}", r"hedge: is not shorter than timeouts.first_byte \(2 s\)"),
    ],
)
def test_contradicting_upstream_timeouts_are_refused(rules: str, problem: str) -> None:
    """By whichever of the two is given, also against a default."""
    with pytest.raises(ConfigError, match=problem):
        warnings(rules)


@pytest.mark.parametrize(
    "rules",
    [
        "breaker: {open: 5m}",
        "breaker: {open: 10m, longest: 10m}",
        "health: {interval: 2s}",
        "hedge: 2s, timeouts: {first_byte: 3s}",
        "queue: {wait: 19s}",
    ],
)
def test_consistent_upstream_timeouts_are_accepted(rules: str) -> None:
    assert warnings(rules, CHAIN) == ()


def test_queue_wait_longer_than_a_run_timeout_is_warned_about() -> None:
    """It is no error: passthrough waits as long."""
    (warning,) = warnings("queue: {wait: 20s}", CHAIN)
    assert warning.startswith("gateway.yaml:2:") and "queue.wait: is not shorter than the 'timeout' of a" in warning
    assert "gateway.yaml:1:" in warning and "(20 s), so its runs end while they wait: choose a shorter one" in warning


def test_invalid_duration_is_reported_once() -> None:
    with pytest.raises(ConfigError) as raised:
        warnings("breaker: {open: soon}")
    assert str(raised.value).count("breaker") == 1
