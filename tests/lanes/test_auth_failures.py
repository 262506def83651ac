"""Wrong keys: all are counted, the first ones are logged, and the others once a minute."""

import logging

import pytest
from functional.through import ask, get, through
from gateways import key, scrape

from gateway.contracts.errors import GatewayError
from gateway.lanes.auth_failures import EVERY_S, LINES, WrongKeys
from gateway.testing.clock import ManualClock

WRONG = GatewayError("invalid_api_key", "The gateway key is not valid.")


def refuse(wrong: WrongKeys, n: int) -> None:
    for _ in range(n):
        wrong.record_refusal(WRONG, peer=("192.0.2.7", 4711), method="GET", path="/v1/models")


def counted(wrong: WrongKeys) -> float:
    (family,) = wrong.collect_families()
    return float(family.samples[0].value)


def test_wrong_keys_are_logged_first_and_then_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A million a minute makes as many lines as one a minute; the lines and their counts are all there were."""
    clock = ManualClock()
    wrong = WrongKeys(clock=clock)
    refuse(wrong, LINES)
    assert [record.message for record in caplog.records] == [
        "a wrong key was refused: GET /v1/models, from 192.0.2.7"
    ] * LINES
    for minute in range(3):
        caplog.clear()
        refuse(wrong, 1000 + minute)
        wrong.sweep()
        assert not caplog.records
        clock.advance(EVERY_S)
        wrong.sweep()
        wrong.sweep()
        (line,) = caplog.records
        assert line.message.startswith(f"{1000 + minute} more requests had a wrong key")
    assert counted(wrong) == LINES + 3003


def test_wrong_key_logging_resumes_after_a_quiet_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Each of a new attempt."""
    clock = ManualClock()
    wrong = WrongKeys(clock=clock)
    refuse(wrong, LINES + 1)
    for _ in range(2):
        clock.advance(EVERY_S)
        wrong.sweep()
    caplog.clear()
    refuse(wrong, LINES)
    assert len(caplog.records) == LINES


def test_suppressed_key_failures_are_logged_once_at_close(caplog: pytest.LogCaptureFixture) -> None:
    """Of a worker; once."""
    wrong = WrongKeys(clock=ManualClock())
    refuse(wrong, LINES + 2)
    caplog.clear()
    wrong.close()
    wrong.close()
    assert [record.message.split(" more")[0] for record in caplog.records] == ["2"]


def test_other_errors_are_not_counted_as_wrong_keys(caplog: pytest.LogCaptureFixture) -> None:
    """A request without a key is no attempt."""
    wrong = WrongKeys(clock=ManualClock())
    wrong.record_refusal(GatewayError("missing_api_key", "No gateway key."), peer=None, method="GET", path="/")
    assert not caplog.records and counted(wrong) == 0
    wrong.record_refusal(WRONG, peer="", method="POST", path="/" + "x" * 10_000)
    assert len(caplog.text) < 400 and "from a local socket" in caplog.text


@pytest.mark.parametrize("target", [b"/v1/x?key=hunter2", b"/context/approvals", b"/metrics", b"/mcp/services/x"])
async def test_each_lane_logs_and_counts_wrong_keys(target: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """With address, method and path, never with the key or a query; counted in /metrics."""
    caplog.set_level(logging.WARNING)
    async with through(keys=[key("k", "metrics")], metrics={"public": True}) as (gateway, _):
        before = (await scrape(gateway))["gateway_wrong_keys_total"]
        for _ in range(LINES + 3):
            answer = await ask(gateway, get(target, b"X-Gateway-Key: hunter2"))
            assert answer.status in ((200,) if target == b"/metrics" else (401,))
        n_wrong = 0 if target == b"/metrics" else LINES + 3
        assert (await scrape(gateway))["gateway_wrong_keys_total"] - before == n_wrong
    lines = [record.message for record in caplog.records if "wrong key" in record.message]
    path = target.partition(b"?")[0].decode()
    single = [f"a wrong key was refused: GET {path}, from 127.0.0.1"] * min(n_wrong, LINES)
    assert [line for line in lines if line.startswith("a wrong key")] == single
    assert [line for line in lines if "3 more requests" in line] == lines[
        len(single) :
    ] and "hunter2" not in caplog.text
