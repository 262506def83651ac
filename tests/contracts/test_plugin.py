"""The arguments that plugins are built with, and the facts that a stage can show."""

from dataclasses import fields

from gateway.contracts.plugin import Enhancer, LoopLimits


def test_loop_limits_default_to_the_documented_values() -> None:
    """requirement agent-loop: ten calls, five minutes, three attempts."""
    limits = LoopLimits()
    assert (limits.max_tool_calls, limits.timeout_s, limits.max_malformed) == (10, 300.0, 3)
    assert {field.name for field in fields(limits)} >= {"tool_format", "result_role", "result_chars"}


def test_enhancer_protocol_is_recognised_structurally() -> None:
    """So that any stage can be one."""

    class Shows:
        async def enhance_prompt(self, prompt_id: str) -> None:
            return None

    assert isinstance(Shows(), Enhancer) and not isinstance(object(), Enhancer)
