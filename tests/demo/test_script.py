"""The script's answers, told as conversations."""

import json
from typing import Any

import pytest

from gateway.demo.conversation import Conversation, ConversationEntry, RefusalError, classify_text
from gateway.demo.functions import NO_FUNCTIONS, Function, Functions
from gateway.demo.script import GREETING, DemoAnswer, build_answer, count_tokens, refuse_when_asked, split_pieces

WEATHER = Function("get_weather", {"properties": {"city": {"type": "string"}}, "required": ["city"]})


def ask(
    *entries: ConversationEntry | str,
    max_tokens: int | None = None,
    native_calls: bool = True,
    functions: Functions = NO_FUNCTIONS,
) -> DemoAnswer:
    conversation = Conversation(
        model="demo",
        entries=tuple(ConversationEntry("user", (entry,)) if isinstance(entry, str) else entry for entry in entries),
        stream=False,
        max_tokens=max_tokens,
        native_calls=native_calls,
        functions=functions,
    )
    return build_answer(conversation, digest="0" * 64)


def text_of(answer: DemoAnswer) -> str:
    return "".join(answer.text)


def call_of(answer: DemoAnswer) -> Any:
    return json.loads(text_of(answer))


def said_by(answer: DemoAnswer) -> ConversationEntry:
    if answer.calls:
        return ConversationEntry("call", tuple(call.arguments for call in answer.calls))
    return classify_text(answer.text)


def result(text: str) -> ConversationEntry:
    return ConversationEntry("result", (text,))


def test_plain_prompt_is_repeated_in_the_answer() -> None:
    """A plain prompt is answered in words that name the demo model and repeat the prompt's."""
    answer = ask("How are you?")
    assert "demo model" in text_of(answer) and '"How are you?"' in text_of(answer)
    assert answer == ask("How are you?")
    assert (answer.finish, answer.prompt_tokens, answer.completion_tokens) == ("stop", 3, len(answer.text))


def test_empty_and_overlong_prompts_are_answered() -> None:
    """No prompt is no error, and a long one is repeated in part."""
    assert "You said nothing" in text_of(ask())
    assert len(text_of(ask("x" * 100_000))) < 1000


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("Summarise the text below.\n\nTwo lanes on one\nbase URL. And more!", "Two lanes on one base URL."),
        ("summarize Pi is 3.14 or so. Yes.", "Pi is 3.14 or so."),
        ("Summarise:\n\n今天很冷。明天更冷。", "Summarise:\n\n今天很冷。明天更冷。"),
        ("Summarise\n\nno end", "no end"),
        ("Summarise", ""),
        (
            'Summarise these.\n\n{"columns":["name","n"],"rows":[["fig",7],["pear",1]]}',
            "2 rows of name, n; the first: fig, 7.",
        ),
        ('Summarise these.\n\n{"columns":["n"],"rows":[[1]]}', "1 row of n; the first: 1."),
        ('Summarise these.\n\n{"columns":[],"rows":[]}', "0 rows of nothing."),
        ('Summarise these.\n\n{"columns":[],"rows":[],"truncated":false,"changed":1}', "1 row changed."),
        ('Summarise these.\n\n{"rows": 3}', '{"rows": 3}'),
    ],
)
def test_summary_prompt_is_answered_with_its_first_sentence(text: str, summary: str) -> None:
    """The first sentence of what is to be summarised, or what rows there are: no model, but of use."""
    assert text_of(ask(text)) == (f'{GREETING} You said: "{text}"' if text.startswith("Summarise:") else summary)


def test_long_word_produces_exactly_n_pieces() -> None:
    """`long N` has exactly N pieces."""
    assert len(ask("long 10000").text) == 10_000
    assert text_of(ask("long 3")) == "word1 word2 word3 "
    assert ask("long 0").text == ()


def test_token_limit_truncates_the_text() -> None:
    """A token limit cuts the text and is told as the reason for the end."""
    answer = ask("long 10", max_tokens=4)
    assert (text_of(answer), answer.finish) == ("word1 word2 word3 word4 ", "length")
    assert ask("long 4", max_tokens=4).finish == "stop"


def test_think_word_adds_thoughts_beside_or_inside_the_text() -> None:
    """`think` thinks beside the text, `think tag` inside it."""
    assert ask("think hi").thoughts and "<think>" not in text_of(ask("think hi"))
    assert not ask("think tag hi").thoughts and text_of(ask("think tag hi")).startswith("<think>")
    assert classify_text(ask("think tag tool x {}").text).kind == "call"


def test_error_word_raises_a_refusal() -> None:
    """`error CODE` raises it, and every other ask does not."""
    with pytest.raises(RefusalError) as refusal:
        refuse_when_asked(ask("error 418"))
    assert refusal.value.status == 418
    refuse_when_asked(ask("error"))


def test_tool_word_produces_a_call_and_mentions_its_result() -> None:
    """`tool` is the call in the prompted format; after the tool's result the answer mentions it."""
    prompt = 'tool execute_sql {"sql": "SELECT 1", "risk_level": "high"}'
    first = ask(prompt)
    parameters = {"sql": "SELECT 1", "risk_level": "high"}
    assert call_of(first) == {"tool": "execute_sql", "parameters": parameters, "terminate": False}
    assert first.finish == "stop"
    assert "42 rows" in text_of(ask(prompt, said_by(first), result("42 rows")))


def test_tool_result_as_user_message_is_recognised() -> None:
    """A result that comes as a user message is a result too."""
    prompt = "tool x {}"
    assert "42 rows" in text_of(ask(prompt, said_by(ask(prompt)), "42 rows"))


def test_earlier_prompts_are_not_repeated() -> None:
    """What was asked in an earlier turn does not come back, whether the turn was finished or failed."""
    prompt = "tool x {}"
    call = said_by(ask(prompt))
    finished = said_by(ask(prompt, call, result("42")))
    assert '"thanks"' in text_of(ask(prompt, call, result("42"), finished, "thanks"))
    assert '"thanks"' in text_of(ask("cut", "thanks"))
    assert '"thanks"' in text_of(ask(prompt, "thanks"))


def test_several_tool_words_produce_a_call_group() -> None:
    """Several `tool` make a JSON array, and all results of the round are told."""
    prompt = 'tool a {"n": 1} tool b {"n": 2}'
    first = ask(prompt)
    assert [call["tool"] for call in call_of(first)] == ["a", "b"]
    answer = text_of(ask(prompt, said_by(first), result("one"), result("two")))
    assert "one" in answer and "two" in answer


def test_steps_word_produces_n_successive_calls() -> None:
    """`steps N` calls N times, `$step` counts, and only the last call terminates."""
    prompt = 'steps 3 terminate tool t {"n": $step, "risk_level": "low"}'
    entries: list[ConversationEntry | str] = [prompt]
    for step in (1, 2, 3):
        answer = ask(*entries)
        call = {"tool": "t", "parameters": {"n": step, "risk_level": "low"}, "terminate": step == 3}
        assert call_of(answer) == call
        entries += [said_by(answer), result(f"result {step}")]
    assert "result 3" in text_of(ask(*entries))
    assert "result 2" not in text_of(ask(*entries))


def test_steps_word_without_a_tool_calls_execute_sql() -> None:
    """Without a tool of its own, `steps` calls execute_sql."""
    assert call_of(ask("steps 2"))["parameters"] == {"sql": "SELECT 1"}


@pytest.mark.parametrize(("parameters", "merged"), [("{}", {}), ('{"a": 1}', {"a": 1})])
def test_risk_level_word_adds_a_parameter(parameters: str, merged: dict[str, object]) -> None:
    """`risk_level` adds the level to the parameters."""
    call = call_of(ask(f"risk_level high tool x {parameters}"))
    assert call["parameters"] == {**merged, "risk_level": "high"}


def test_native_words_produce_parallel_calls() -> None:
    """`native` calls side by side are one round, in whichever entries the history has them."""
    prompt = 'native a {"n": $step} native b {}'
    first = ask(prompt)
    assert (first.text, first.finish) == ((), "tool_calls")
    assert [(call.name, call.arguments) for call in first.calls] == [("a", '{"n": 1}'), ("b", "{}")]
    calls = [ConversationEntry("call", (call.arguments,)) for call in first.calls]
    answer = ask(prompt, *calls, result("one"), result("two"))
    assert answer.calls == () and "one" in text_of(answer) and "two" in text_of(answer)


def test_native_word_falls_back_to_the_prompted_format() -> None:
    """Where the API has no tool calls, `native` is the prompted format."""
    assert call_of(ask("native a {}", native_calls=False))["tool"] == "a"


@pytest.mark.parametrize(
    "complaint", [ConversationEntry("user", ("Not JSON: try again",)), ConversationEntry("system", ("Not JSON",))]
)
@pytest.mark.parametrize("keeps_bad_message", [False, True])
def test_malformed_word_breaks_json_until_corrected(complaint: ConversationEntry, keeps_bad_message: bool) -> None:
    """The JSON is broken until as many complaints as asked for stand in the history, and then right."""
    entries: list[ConversationEntry | str] = ['malformed 2 tool x {"a": 1}']
    for _ in range(2):
        answer = ask(*entries)
        assert said_by(answer).kind == "broken_call"
        entries += [said_by(answer), complaint] if keeps_bad_message else [complaint]
    answer = ask(*entries)
    assert call_of(answer) == {"tool": "x", "parameters": {"a": 1}, "terminate": False}
    assert "42" in text_of(ask(*entries, said_by(answer), result("42")))


def test_complaint_in_the_prompt_message_is_counted() -> None:
    """Gateways whose servers take no two messages of the user in a row put complaints behind the prompt."""
    prompt = 'malformed 2 tool x {"a": 1}'
    for joined in (("\n\n".join((prompt, "Not JSON.")),), (prompt, "Not JSON.")):
        assert said_by(ask(ConversationEntry("user", joined))).kind == "broken_call"
        again = ConversationEntry("user", (*joined, "Not JSON either."))
        assert call_of(ask(again)) == {"tool": "x", "parameters": {"a": 1}, "terminate": False}


def test_malformed_native_call_has_broken_arguments() -> None:
    """Broken native arguments are no JSON; the complaint about them may be a tool message."""
    prompt = "malformed native x {}"
    assert ask(prompt).calls[0].arguments == "{"
    history = [ConversationEntry("broken_call", ("{",)), result("arguments are not JSON")]
    assert ask(prompt, *history).calls[0].arguments == "{}"


def test_tagged_parts_around_a_prompt_are_ignored() -> None:
    """Tagged parts that a client adds to a user message, or sends before it, are not the prompt."""
    around = ConversationEntry("user", ("<context>long 3</context>", "hello", "<reminder>be kind</reminder>"))
    assert '"hello"' in text_of(ask(around))
    assert text_of(ask("<environment>", ConversationEntry("user", ("long 2", "<reminder>")))) == "word1 word2 "


def test_reminder_after_a_result_is_ignored() -> None:
    """A client's own user message after a result does not hide the ask that is being worked on."""
    prompt = 'tool x {"a": 1}'
    history = [said_by(ask(prompt)), result("42")]
    assert "42" in text_of(ask(prompt, *history, "<reminder>be kind</reminder>"))


def test_unscripted_tool_result_is_mentioned() -> None:
    """A tool's result is mentioned even if the demo model never asked for it."""
    assert "sunny" in text_of(ask("weather?", ConversationEntry("call", ("{}",)), result("sunny")))
    assert "sunny" in text_of(ask("weather?", result("sunny")))


def test_client_function_is_called_once_per_question() -> None:
    """A message about a function is answered with its call, once, and the result is told; so is the next message."""
    functions = Functions((WEATHER,))
    prompt = "What's the weather in New York?"
    first = ask(prompt, functions=functions)
    assert (first.text, first.finish) == ((), "tool_calls")
    assert [(call.name, call.arguments) for call in first.calls] == [("get_weather", '{"city":"New York"}')]
    history = [prompt, said_by(first), result("sunny")]
    told = ask(*history, functions=functions)
    assert told.calls == () and "sunny" in text_of(told)
    (again,) = ask(*history, said_by(told), "And the weather in Rome?", functions=functions).calls
    assert again.arguments == '{"city":"Rome"}'
    assert ask(prompt, result("sunny"), functions=functions).calls == ()


@pytest.mark.parametrize("prompt", ["tool x {}", "weather in Rome?"])
def test_result_as_user_message_triggers_no_function(prompt: str) -> None:
    """A result as a user message is no question, whatever it is about."""
    functions = Functions((WEATHER,))
    told = ask(prompt, said_by(ask(prompt, functions=functions)), "The weather is sunny", functions=functions)
    assert told.calls == () and "is sunny" in text_of(told)


def test_new_question_after_a_result_calls_a_function() -> None:
    """A user message behind a result may be about a function anew; what a client adds there is not."""
    functions = Functions((WEATHER,))
    history = ["weather in Rome?", said_by(ask("weather in Rome?", functions=functions)), result("sunny")]
    (again,) = ask(*history, "And the weather in Oslo?", functions=functions).calls
    assert again.arguments == '{"city":"Oslo"}'
    reminded = ask(*history, "<reminder>weather</reminder>", functions=functions)
    assert reminded.calls == () and "sunny" in text_of(reminded)


def test_unrelated_messages_trigger_no_function_call() -> None:
    """Other messages, scripted ones, and parts that a client adds are about no function."""
    functions = Functions((WEATHER,))
    assert '"Hello"' in text_of(ask("Hello", functions=functions))
    assert text_of(ask("long 1 weather", functions=functions)) == "word1 "
    assert ask("<environment>the weather is fine</environment>", functions=functions).calls == ()
    assert '"thanks"' in text_of(ask("weather?", "thanks", functions=functions))


@pytest.mark.parametrize("prompt", ["Hello", "<task>Hello</task>"])
@pytest.mark.parametrize("behind", [(), ("<reminder>be kind</reminder>",)])
def test_forced_function_is_called_once(prompt: str, behind: tuple[str, ...]) -> None:
    """A forced call needs no word, is made once, and scripted messages do as they say."""
    functions = Functions((WEATHER,), forced=True)
    first = ask(prompt, functions=functions)
    assert [call.name for call in first.calls] == ["get_weather"]
    told = ask(prompt, said_by(first), result("sunny"), *behind, functions=functions)
    assert told.calls == () and "sunny" in text_of(told)
    assert text_of(ask("long 1", functions=functions)) == "word1 "
    assert ask(ConversationEntry("system", ("Be kind.",)), functions=functions).calls and ask(functions=functions).calls
    assert "sunny" in text_of(ask(result("sunny"), functions=functions))


@pytest.mark.parametrize("text", ["", " a  b\n", "x" * 100, "你好，世界 " * 9, "\t\n"])
def test_text_pieces_join_to_the_whole_text(text: str) -> None:
    """The pieces of a text are the whole text."""
    assert "".join(split_pieces(text)) == text


def test_prompt_tokens_are_estimated_from_utf8_bytes() -> None:
    """A prompt is estimated as UTF-8 bytes / 4, rounded up."""
    conversation = Conversation(
        model="demo", entries=(ConversationEntry("user", ("你好",)),), stream=False, max_tokens=None
    )
    assert count_tokens(conversation) == 2
