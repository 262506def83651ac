"""The sections about the context lane."""

from gateway.config.schema.context import Context, StreamSettings
from gateway.config.schema.settings import Settings


def test_context_defaults_match_the_contract() -> None:
    """The first upstream, the client's model, the prompt `default`, the chain `assistant`."""
    context = Context.model_validate({})
    assert (context.upstream, context.model, context.prompt, context.chain) == (None, None, "default", "assistant")
    assert StreamSettings().keepalive == 10.0


def test_default_chain_and_prompt_exist_without_declaration() -> None:
    """As the contract writes them, also beside others; declaring them replaces them whole."""
    plain = Settings.model_validate({})
    assert [stage.use for stage in plain.chains["assistant"]] == ["intent", "memory", "prompt_enhancer", "agent_loop"]
    assert plain.chains["assistant"][3].with_["max_tool_calls"] == 10
    assert plain.prompts["default"].text == "You are a helpful assistant."
    more = Settings.model_validate({"chains": {"bare": []}, "prompts": {"terse": {"text": "Be terse."}}})
    assert set(more.chains) == {"assistant", "bare"} and set(more.prompts) == {"default", "terse"}
    other = Settings.model_validate(
        {"chains": {"assistant": [{"use": "memory"}]}, "prompts": {"default": {"text": "x"}}}
    )
    assert [stage.use for stage in other.chains["assistant"]] == ["memory"]
    assert other.prompts["default"].text == "x"


def test_chain_stage_fails_on_error_by_default() -> None:
    """`on_error: skip` is the operator's word."""
    settings = Settings.model_validate({"chains": {"c": [{"use": "a"}, {"use": "b", "on_error": "skip"}]}})
    assert [stage.on_error for stage in settings.chains["c"]] == ["fail", "skip"]
