"""`gateway selftest` proves what it says: it passes on this gateway, and each check can fail."""

import pytest
from gateways import ended

from gateway.testing.selftest import CHECKS, Check, report


@pytest.mark.parametrize("check", CHECKS, ids=[check.subject for check in CHECKS])
async def test_selftest_checks_pass(check: Check) -> None:
    """Passthrough is unchanged, on both event loops."""
    assert await check.run() == ""


async def test_failed_selftest_check_is_reported_with_its_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """The table names the check and what was found, and the exit code is 1."""

    async def found() -> str:
        return "header 3 changed"

    async def broke() -> str:
        raise TimeoutError("waited 5 s")

    assert await report([Check("one", "a promise", found), Check("two", "another", broke), CHECKS[0]]) == 1
    out = capsys.readouterr().out
    assert "FAILED  one" in out and "header 3 changed" in out
    assert "FAILED  two" in out and "TimeoutError: waited 5 s" in out
    assert "1 of 3 checks hold." in out


async def test_selftest_command_prints_a_line_per_check() -> None:
    """`gateway selftest` ends with 0 and a line for each check."""
    code, out, err = await ended("selftest")
    assert code == 0, out + err
    assert out.count("\nok ") == len(CHECKS)
