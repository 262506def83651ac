"""How much a model thinks, and what does not go with thoughts."""

import orjson
import pytest

from gateway.contracts.storage.store import Json
from gateway.model.apis.messages.request import build_messages_body
from gateway.upstream.endpoint import ModelAccess
from tests.messages_rules import Ledger, find_fault, sign

ASKS: Json = {"role": "user", "content": "Hi"}
TOOL: Json = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
LOOKS: Json = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "look", "arguments": "{}"}}]}
FOUND: Json = {"role": "tool", "tool_call_id": "a", "content": "x"}
SHOWN: Json = {"type": "adaptive", "display": "summarized"}
BUDGET = ModelAccess(api="messages", thinking="budget", max_tokens=4000)


def build(access: ModelAccess = ModelAccess(api="messages"), **body: object) -> Json:  # noqa: B008  (it is frozen)
    built: Json = orjson.loads(orjson.dumps(build_messages_body({"model": "m", "messages": [ASKS], **body}, access)))
    assert find_fault(built, Ledger()) is None
    return built


@pytest.mark.parametrize(
    ("asked", "thinking", "config"),
    [
        ({}, None, None),
        ({"reasoning_effort": "none"}, {"type": "disabled"}, None),
        ({"reasoning_effort": "minimal"}, SHOWN, {"effort": "low"}),
        ({"reasoning_effort": "xhigh"}, SHOWN, {"effort": "xhigh"}),
        ({"reasoning_effort": "odd"}, None, None),
        ({"reasoning": {"effort": "high"}}, SHOWN, {"effort": "high"}),
        ({"reasoning": {"enabled": True}}, SHOWN, {"effort": "medium"}),
        ({"reasoning": {"enabled": False}}, {"type": "disabled"}, None),
        ({"reasoning": {"max_tokens": 2000}}, {"type": "enabled", "budget_tokens": 2000}, None),
        ({"thinking": {"type": "adaptive"}, "reasoning_effort": "low"}, {"type": "adaptive"}, None),
        ({"messages_api": {"thinking": {"type": "disabled"}}, "reasoning_effort": "low"}, {"type": "disabled"}, None),
        (
            {"reasoning_effort": "low", "messages_api": {"output_config": {"effort": "max"}}},
            SHOWN,
            {"effort": "max"},
        ),
        (
            {"reasoning": {"effort": "low", "exclude": True}},
            {"type": "adaptive", "display": "omitted"},
            {"effort": "low"},
        ),
    ],
)
def test_effort_becomes_thinking(asked: Json, thinking: Json | None, config: Json | None) -> None:
    built = build(**asked)
    assert (built.get("thinking"), built.get("output_config")) == (thinking, config)


@pytest.mark.parametrize(
    ("asked", "budget", "limit"),
    [
        ({"reasoning_effort": "high"}, 16_384, 20_384),
        ({"reasoning_effort": "high", "max_tokens": 5000}, 4999, 5000),
        ({"reasoning_effort": "minimal", "max_tokens": 500}, None, 500),
        ({"reasoning": {"max_tokens": 1}}, 1024, 5024),
        ({}, None, 4000),
    ],
)
def test_budget_stays_below_the_limit_of_the_answer(asked: Json, budget: int | None, limit: int) -> None:
    built = build(BUDGET, **asked)
    assert (built.get("thinking", {}).get("budget_tokens"), built["max_tokens"]) == (budget, limit)


def test_sampling_is_left_out_beside_thoughts() -> None:
    built = build(reasoning_effort="low", temperature=0.2, top_k=5)
    assert not built.keys() & {"temperature", "top_p", "top_k"}
    assert "top_p" not in build(reasoning_effort="low", top_p=0.5)
    assert build(reasoning_effort="low", top_p=0.97)["top_p"] == 0.97
    assert build(reasoning_effort="none", temperature=0.2)["temperature"] == 0.2


@pytest.mark.parametrize("access", [BUDGET, ModelAccess(api="messages")])
def test_forced_call_is_made_without_thoughts(access: ModelAccess) -> None:
    assert "thinking" not in build(access, reasoning_effort="high", tools=[TOOL], tool_choice="required")
    assert "thinking" in build(access, reasoning_effort="high", tools=[TOOL])


def test_round_of_another_model_goes_on_without_a_budget_for_thoughts() -> None:
    """The API wants a thought in front of the calls of the answer under way; another model's cannot be sent."""
    messages = [ASKS, {**LOOKS, "reasoning_content": "Hm."}, FOUND]
    assert "thinking" not in build(BUDGET, reasoning_effort="high", messages=messages, tools=[TOOL])
    own = {
        "type": "reasoning.text",
        "text": "Hm.",
        "signature": sign("Hm."),
        "format": "anthropic-claude-v1",
        "index": 0,
    }
    messages[1] = {**LOOKS, "reasoning_details": [own]}
    assert "thinking" in build(BUDGET, reasoning_effort="high", messages=messages, tools=[TOOL])
    assert "thinking" in build(BUDGET, reasoning_effort="high", messages=[*messages, ASKS], tools=[TOOL])
