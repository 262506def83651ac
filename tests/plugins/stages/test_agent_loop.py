"""The agent loop's plugin: its settings become the limits of the runs."""

import pytest
from pydantic import ValidationError

from gateway.contracts.plugin import LoopLimits
from gateway.plugins.stages.agent_loop import PLUGIN, Config
from gateway.testing import FakeHost


def limits_of(**settings: object) -> LoopLimits:
    host = FakeHost()
    PLUGIN.build(Config.model_validate(settings), host)
    return host.runs.limits[0]


def test_default_settings_are_the_default_loop_limits() -> None:
    """Ten calls, five minutes, three unreadable answers, JSON in the text, role tool, 32 KiB of a result."""
    assert limits_of() == LoopLimits()


def test_each_setting_reaches_the_loop_limits() -> None:
    """A duration as people write it, or in seconds."""
    settings = {
        "max_tool_calls": 3,
        "timeout": "2m",
        "max_malformed": 1,
        "tool_format": "native",
        "result_role": "user",
        "result_chars": 1000,
    }
    assert limits_of(**settings) == LoopLimits(
        max_tool_calls=3, timeout_s=120.0, max_malformed=1, tool_format="native", result_role="user", result_chars=1000
    )
    assert limits_of(timeout=7).timeout_s == 7.0


@pytest.mark.parametrize(
    "settings",
    [{"max_tool_calls": 0}, {"timeout": "soon"}, {"timeout": 0}, {"tool_format": "xml"}, {"unknown": 1}],
    ids=str,
)
def test_invalid_settings_are_refused(settings: dict[str, object]) -> None:
    """When the configuration is read."""
    with pytest.raises(ValidationError):
        Config.model_validate(settings)
