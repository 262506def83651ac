"""The section of limits: its figures, and what is no figure."""

import pytest
from pydantic import ValidationError

from gateway.contracts.allowance import Allowance
from gateway.features.limits.section import AllowanceSettings


def test_limits_section_is_parsed_into_an_allowance() -> None:
    section = AllowanceSettings.model_validate({"requests_per_minute": "60", "cost_per_month": "25.5", "soft": "yes"})
    assert section.allowance == Allowance(requests_per_minute=60, cost_per_month=25.5, soft=True)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("requests_per_minute", 0, "must be between 1 and"),
        ("tokens_per_minute", 1.5, "expected a whole number"),
        ("concurrent", -1, "must be between 1 and"),
        ("tokens_per_day", True, "expected a whole number"),
        ("cost_per_day", "much", "expected an amount such as 25 or 0.5"),
        ("cost_per_day", float("nan"), "must be between 0 and"),
        ("cost_per_day", "inf", "must be between 0 and"),
        pytest.param("cost_per_day", 10**400, "must be between 0 and", id="cost_per_day-huge"),
        ("cost_per_month", True, "expected an amount"),
    ],
)
def test_invalid_limit_value_is_refused(setting: str, value: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        AllowanceSettings.model_validate({setting: value})
