"""The magic words are read from the beginning of a prompt and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.demo.words import MAX_DELAY_S, MAX_EVENTS, WORDS, PromptAsk, ScriptedCall, format_words_table, read_ask


@pytest.mark.parametrize(
    ("text", "ask"),
    [
        ("hello", PromptAsk(rest="hello")),
        ("slow 3", PromptAsk(scripted=True, delay_s=3)),
        ("SLOW 0.25 please", PromptAsk(scripted=True, delay_s=0.25, rest="please")),
        ("drip 50, long 7", PromptAsk(scripted=True, gap_s=0.05, events=7)),
        ("error 429", PromptAsk(scripted=True, status=429)),
        ("  slow \t 3;drip\n20", PromptAsk(scripted=True, delay_s=3, gap_s=0.02)),
        ("cut\nhello", PromptAsk(scripted=True, cut=True, rest="hello")),
        ("think hello", PromptAsk(scripted=True, thinking="field", rest="hello")),
        ("think tag hello", PromptAsk(scripted=True, thinking="tag", rest="hello")),
        ("terminate", PromptAsk(scripted=True, terminate=True)),
        ("steps 12", PromptAsk(scripted=True, rounds=12)),
        ("risk_level high", PromptAsk(scripted=True, risk_level="high")),
        ("Summarise this", PromptAsk(scripted=True, summary=True, rest="this")),
        ("summarize", PromptAsk(scripted=True, summary=True)),
        ("malformed", PromptAsk(scripted=True, broken=1)),
        ("malformed 3", PromptAsk(scripted=True, broken=3)),
    ],
)
def test_prompt_words_are_parsed_in_any_case(text: str, ask: PromptAsk) -> None:
    """Each word is read in any case, and what follows it is the rest."""
    assert read_ask(text) == ask


@pytest.mark.parametrize(
    "text",
    ["slow down", "long story", "error in line 4", "error 200", "error 4290", "cutting", "please slow 3", "tool time",
     "tool x {broken", 'tool x ["list"]', "thinking of you", "summarised", "slow 9999999"],
)  # fmt: skip
def test_ordinary_text_is_not_parsed_as_prompt_words(text: str) -> None:
    """Text that only resembles a word, or stands after other text, is ordinary."""
    assert read_ask(text) == PromptAsk(rest=text)


def test_calls_are_kept_letter_for_letter() -> None:
    """Each `tool` adds a call with its JSON as written: spaces, repeated keys and `$step` too."""
    ask = read_ask('tool a.b {"x":  {"y": "}"}, "x": $step} tool c{} and so on')
    assert ask.calls == (ScriptedCall("a.b", '{"x":  {"y": "}"}, "x": $step}'), ScriptedCall("c", "{}"))
    assert (ask.native, ask.wanted_rounds, ask.rest) == (False, 1, "and so on")


def test_native_word_marks_the_call_as_native() -> None:
    """`native` adds a call and asks for the API's own form."""
    assert read_ask("native  f{}") == PromptAsk(scripted=True, native=True, calls=(ScriptedCall("f", "{}"),))


def test_numbers_above_the_limits_are_clamped() -> None:
    """Numbers beyond the limits count as the limit."""
    ask = read_ask("slow 999999 long 999999")
    assert (ask.delay_s, ask.events) == (MAX_DELAY_S, MAX_EVENTS)


@given(st.text() | st.from_regex(r"((slow|drip|long|tool|native|cut|think|steps) ?[a-z0-9]* ?(\{[^}]*\})? ?)*"))
def test_any_text_is_readable(text: str) -> None:
    """No text makes the reading fail, and the rest is always the end of the text."""
    ask = read_ask(text)
    assert text.strip().endswith(ask.rest)
    assert ask.scripted or ask == PromptAsk(rest=ask.rest)


def test_overly_nested_json_is_ordinary_text() -> None:
    """A JSON object too deep to be read is ordinary text."""
    assert not read_ask("tool x " + '{"a":' * 100_000).scripted


def test_table_names_every_word() -> None:
    """The Markdown table has a row for each word."""
    rows = format_words_table().splitlines()
    assert len(rows) == len(WORDS) + 2
    assert all(row.count("|") == 3 for row in rows)


@pytest.mark.parametrize("reminders", [1, 3, 4000])
def test_reminders_in_front_of_words_are_left_out(reminders: int) -> None:
    """As a server of chat completions gets them from Claude Code; a text of reminders alone has no words."""
    text = "<system-reminder>\nBe kind.\n</system-reminder>\n\n" * reminders
    assert read_ask(f"{text}long 3").events == 3
    assert read_ask(text).is_tagged and not read_ask(text).scripted
