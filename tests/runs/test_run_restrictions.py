"""The narrowing of a run by a request that decides: what it narrows, and that it never widens."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.contracts.exchange import Exchange
from gateway.contracts.storage.store import Json
from gateway.runs.request_snapshot import build_run_record
from gateway.runs.run_restrictions import apply_narrowing, build_narrowing
from tests.agent.agent_bench import CALLER
from tests.exchanges import new_exchange

FUNCTIONS: Json = {"tools": [{"type": "function", "function": {"name": "theirs"}}]}


def exchange(body: Json | None = None, **facts: Any) -> Exchange:
    return new_exchange(id="run_1", body={"messages": [], **(body or {})}, caller=CALLER, chain="main", **facts)


def narrowing(began: Exchange, own: Exchange) -> Json:
    return build_narrowing(own, build_run_record(began, now_s=0.0))


@pytest.mark.parametrize(
    ("began", "own", "found"),
    [
        ({}, {}, {}),
        ({"only_tools": ("a", "b")}, {"only_tools": ("b", "a")}, {}),
        ({"only_tools": ("a",)}, {}, {}),
        ({}, {"only_tools": ("a",)}, {"only": ["a"]}),
        ({"no_tools": True}, {"no_tools": True}, {}),
        ({"ask_first": ("a", "b")}, {"ask_first": ("b", "c")}, {"ask_first": ["c"]}),
        ({"max_tool_calls": 3}, {"max_tool_calls": 3}, {}),
        ({"max_tool_calls": 3}, {"max_tool_calls": 9}, {}),
        ({}, {"max_tool_calls": 2}, {"max_tool_calls": 2}),
        ({"approvals": "reject"}, {"approvals": "reject"}, {}),
        ({}, {"approvals": "reject"}, {"rejects": True}),
        ({}, {"approvals": "hold"}, {}),
        ({}, {"no_tools": True}, {"no_tools": True, "no_functions": True}),
        ({}, {"no_tools": True, "body": FUNCTIONS}, {"no_tools": True}),
        ({"body": {"tool_choice": "none"}}, {"body": {"tool_choice": "none"}}, {}),
        ({"body": FUNCTIONS}, {"body": {**FUNCTIONS, "tool_choice": "none"}}, {"no_functions": True}),
    ],
)
def test_only_restrictions_the_run_lacks_narrow_it(began: Json, own: Json, found: Json) -> None:
    """A client that repeats what it began with narrows nothing."""
    assert narrowing(exchange(**began), exchange(**own)) == found


def test_narrowings_of_a_run_combine_to_the_strictest() -> None:
    """A tool must be among those of each; the lowest limit counts; what asks goes on asking."""
    run = exchange(FUNCTIONS, only_tools=("a", "b"), ask_first=("a",), max_tool_calls=5)
    once = apply_narrowing(run, {"only": ["b", "c"], "ask_first": ["b"], "max_tool_calls": 2})
    assert [once.steering.allows(tool) for tool in ("a", "b", "c")] == [False, True, False]
    assert once.steering.asks_first("a") and once.steering.asks_first("b") and once.steering.max_tool_calls == 2
    twice = apply_narrowing(once, {"only": ["a", "c"], "max_tool_calls": 4})
    assert not any(map(twice.steering.allows, "abc")) and twice.steering.max_tool_calls == 2
    assert apply_narrowing(exchange(), {"only": ["b"]}).steering.allows("b") and not apply_narrowing(
        exchange(), {"only": ["b"]}
    ).steering.allows("a")
    assert apply_narrowing(run, {}) == run and not apply_narrowing(run, {"no_tools": True}).steering.allows("a")
    assert apply_narrowing(run, {"rejects": True}) == replace(run, steering=replace(run.steering, approvals="reject"))
    assert apply_narrowing(run, {"no_functions": True}).body["tool_choice"] == "none"
    assert "tool_choice" not in apply_narrowing(exchange(), {"no_functions": True}).body
