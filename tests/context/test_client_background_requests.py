"""Requests that chat programs make by themselves are known, and those of people are not taken for them.

tests/data/program_tasks.jsonl has the words by which each is known, with their source; `[...]` stands for the rest of a
prompt, which does not matter.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.context.client_background_requests import find_requested_task, find_task
from gateway.contracts.errors import GatewayError

Json = dict[str, Any]

LINES = (Path(__file__).parents[1] / "data" / "program_tasks.jsonl").read_text(encoding="utf-8").splitlines()
CASES: list[Json] = [json.loads(line) for line in LINES]
TASKS = [case for case in CASES if case["task"]]


def named(case: Json) -> str:
    return re.sub(r"\W+", "-", f"{case['program']} {case['task']}")


@pytest.mark.parametrize("case", CASES, ids=named)
def test_background_request_of_a_chat_program_is_recognised(case: Json) -> None:
    """By what it is for; a person's is none, whatever it is about."""
    assert find_task(case["messages"]) == case["task"]


@pytest.mark.parametrize("case", TASKS, ids=named)
def test_background_request_is_recognised_in_other_spellings(case: Json) -> None:
    """Text in parts, a system message of the operator's in front, other line ends."""
    parts = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in case["messages"]]
    assert find_task(parts) == case["task"]
    assert find_task([{"role": "system", "content": "Answer in English."}, *case["messages"]]) == case["task"]
    windows = [{**m, "content": m["content"].replace("\n", "\r\n")} for m in case["messages"]]
    assert find_task(windows) == case["task"]


@pytest.mark.parametrize("case", TASKS, ids=named)
def test_tool_and_model_text_does_not_mark_a_background_request(case: Json) -> None:
    """Only words of the system and of the user's last message count."""
    text = case["messages"][-1]["content"]
    call = {"role": "assistant", "content": text, "tool_calls": [{"id": "c", "type": "function", "function": {}}]}
    said = [{"role": "user", "content": "Look at it."}, call, {"role": "tool", "tool_call_id": "c", "content": text}]
    assert find_task(said) is None and find_task([*said, {"role": "user", "content": "Now deploy it."}]) is None


@pytest.mark.parametrize("case", [case for case in TASKS if case["task"] == "memory"], ids=named)
def test_background_agent_is_recognised_in_each_round(case: Json) -> None:
    """A result of its own tool is the last message, and the system message still says what the request is for."""
    call = {"id": "c", "type": "function", "function": {"name": "write_file", "arguments": "{}"}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    rounds = [*case["messages"], asks, {"role": "tool", "tool_call_id": "c", "content": "written"}]
    assert find_task(rounds) == "memory"


@pytest.mark.parametrize("tools", [1, 100, 1000])
def test_long_system_message_is_recognised_on_every_request(tools: int) -> None:
    """However many tools it lists, and again with the next request."""
    told = f"Available Tools: [{'{get_weather: the weather}' * tools}]\nYour task is to choose and return"
    messages = [{"role": "system", "content": told}, {"role": "user", "content": "Query: Hi"}]
    expected = "function_calling" if len(told) < 20_000 else None
    assert [find_task(messages) for _ in range(3)] == [expected] * 3
    person = [{"role": "system", "content": "You are a poet."}, messages[1]]
    assert [find_task(person) for _ in range(3)] == [None] * 3


def test_task_header_overrides_the_recognised_task() -> None:
    """Whatever the words are; `none` says that it is a user's own. Other values are refused."""
    title, plain = TASKS[0]["messages"], [{"role": "user", "content": "Hi"}]
    assert find_requested_task("tags_generation", plain, look=False) == "tags_generation"
    assert find_requested_task("none", title, look=True) is None
    assert (find_requested_task(None, title, look=True), find_requested_task(None, title, look=False)) == (
        "title",
        None,
    )
    for odd in ("two words", "x" * 65, "a,b", "é"):
        with pytest.raises(GatewayError, match="letters, digits"):
            find_requested_task(odd, plain, look=True)


@pytest.mark.parametrize(
    "text",
    [
        "### Task:\n" + "Generate " * 200_000,
        "user: a\n" * 200_000,
        "<chat_history>" * 100_000,
        "generate a title " * 100_000,
        "\n" * 1_000_000 + "x",
        "no a, " * 200_000,
        "Available Tools: " * 100_000,
    ],
    ids=lambda text: text[:12].strip(),
)
def test_task_detection_reads_a_bounded_part_of_long_texts(text: str) -> None:
    """Only so much of them is looked at: a reading of the whole would not come to its end."""
    messages = [{"role": "system", "content": text}, {"role": "user", "content": text}]
    assert [find_task(messages) for _ in range(20)] == [None] * 20


@pytest.mark.parametrize("odd", [[], [{}], [{"role": "user"}], [{"role": "user", "content": 5}]])
def test_malformed_messages_match_no_background_task(odd: list[Json]) -> None:
    """Whatever a client sends."""
    assert find_task(odd) is None


def test_instruction_behind_words_without_an_answer_is_recognised() -> None:
    """In a part of its own, as Claude Code writes it when it compacts a conversation whose last message failed."""
    instruction = {"type": "text", "text": "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nSummarise."}
    words = {"type": "text", "text": "Log it.\n"}
    assert find_task([{"role": "user", "content": [words, instruction]}]) == "summary"
    assert (
        find_task([{"role": "user", "content": [instruction, words]}, {"role": "assistant", "content": "Hi."}]) is None
    )
    assert (
        find_task([{"role": "user", "content": [words, {"type": "text", "text": f"> {instruction['text']}"}]}]) is None
    )
