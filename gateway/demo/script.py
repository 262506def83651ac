"""The script: from a conversation to the demo model's answer, without I/O, a clock or chance."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import orjson

from gateway.demo.conversation import Conversation, ConversationEntry, RefusalError
from gateway.demo.functions import Functions
from gateway.demo.words import STEP, PromptAsk, ScriptedCall, read_ask

Finish = Literal["stop", "length", "tool_calls"]

CREATED: Final = 1_767_225_600  # 2026-01-01T00:00:00Z: the same request has the same answer on any day
THOUGHT: Final = "The first words of the prompt say what to do. I only follow the script."
GREETING: Final = "Hello! This is the demo model: a script on your own machine, without a key and without a network."
DEFAULT_CALL: Final = ScriptedCall("execute_sql", '{"sql": "SELECT $step"}')

_QUOTE_CHARS: Final = 500
_SENTENCE: Final = re.compile(r".+?(?:[.!?](?=\s|$)|[。！？])", re.DOTALL)
_PIECE: Final = re.compile(r"\S{1,12}\s*|\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoAnswer:
    """The answer of the model; `thoughts` and `text` are in the pieces that a stream sends."""

    ask: PromptAsk
    digest: str
    model: str
    thoughts: tuple[str, ...]
    text: tuple[str, ...]
    calls: tuple[ScriptedCall, ...]
    finish: Finish
    prompt_tokens: int

    @property
    def completion_tokens(self) -> int:
        """Return the count of tokens: one for each piece."""
        return len(self.thoughts) + len(self.text) + sum(len(split_pieces(call.arguments)) for call in self.calls)


@dataclass(frozen=True, slots=True)
class _Progress:
    """The progress of the conversation since the ask."""

    rounds: int
    complaints: int
    results: tuple[str, ...]


def build_answer(conversation: Conversation, *, digest: str) -> DemoAnswer:
    """Return the answer to a conversation; `digest` is the request's hash in hex, from which every id is made."""
    ask, since = _find_ask(_select_current_turn(conversation.entries), functions=conversation.functions)
    if not conversation.native_calls:
        ask = replace(ask, native=False)
    progress = _read_progress(since)
    calls = _choose_calls(ask, progress=progress) if _has_calls(ask, progress=progress) else ()
    native = calls if ask.native else ()
    text = () if native else _get_text(ask, progress=progress, calls=calls)
    finish: Finish = "tool_calls" if native else "stop"
    limit = conversation.max_tokens
    if limit is not None and limit < len(text):
        text, finish = text[:limit], "length"
    return DemoAnswer(
        ask=ask,
        digest=digest,
        model=conversation.model,
        thoughts=split_pieces(THOUGHT) if ask.thinking == "field" else (),
        text=text,
        calls=native,
        finish=finish,
        prompt_tokens=count_tokens(conversation),
    )


def refuse_when_asked(answer: DemoAnswer) -> None:
    """Raise the error that the words `error CODE` ask for."""
    status = answer.ask.status
    if status is not None:
        message = f"The prompt asked the demo model for this status, with the words 'error {status}'."
        raise RefusalError(message, status=status, code="demo_error")


def count_tokens(conversation: Conversation) -> int:
    """Return the size of the prompt: UTF-8 bytes / 4, rounded up."""
    return -(-sum(len(text.encode()) for entry in conversation.entries for text in entry.texts) // 4)


def split_pieces(text: str) -> tuple[str, ...]:
    """Return the text cut into the pieces of a stream: words, and long words at every twelfth character."""
    return tuple(_PIECE.findall(text))


def _select_current_turn(entries: Sequence[ConversationEntry]) -> Sequence[ConversationEntry]:
    """Return the entries since the model's last answer that the user has replied to."""
    for index in range(len(entries) - 1, 0, -1):
        if entries[index - 1].kind == "answer" and entries[index].kind == "user":
            return entries[index:]
    return entries


def _find_ask(
    turn: Sequence[ConversationEntry], *, functions: Functions
) -> tuple[PromptAsk, Sequence[ConversationEntry]]:
    """Return the ask of a turn and the entries after it.

    It is in the last user message. Only when that has no words, an earlier one may still be worked on: gateways also
    put results and complaints into user messages.
    """
    asks = [
        (_choose_ask(entry), [*_find_complaints(entry), *turn[index + 1 :]])
        for index, entry in enumerate(turn)
        if entry.kind == "user"
    ]
    asks = [(_with_function(ask, functions), since) for ask, since in asks or [(PromptAsk(), list(turn))]]
    last = asks[-1]
    if last[0].scripted:
        return last
    under_way = next((asked for asked in reversed(asks) if _is_under_way(*asked)), last)
    return last if _is_next_question(last[0], *under_way) else under_way


def _find_complaints(entry: ConversationEntry) -> list[ConversationEntry]:
    """Return the paragraphs behind an ask for a broken call: gateways put their complaints there, too."""
    paragraphs = "\n\n".join(entry.texts).split("\n\n")
    asked = next((index for index, text in enumerate(paragraphs) if read_ask(text).broken), len(paragraphs))
    return [ConversationEntry("user", (text,)) for text in paragraphs[asked + 1 :] if not read_ask(text).is_tagged]


def _is_under_way(ask: PromptAsk, since: Sequence[ConversationEntry]) -> bool:
    return ask.broken > 0 or (ask.wanted_rounds > 0 and any(entry.kind == "call" for entry in since))


def _is_next_question(last: PromptAsk, earlier: PromptAsk, since: Sequence[ConversationEntry]) -> bool:
    """Return whether the last ask is about a function anew, behind the result that an earlier one of the kind got."""
    is_question = last.calls and not last.is_tagged and not earlier.scripted
    return bool(is_question) and any(entry.kind == "result" for entry in since)


def _choose_ask(entry: ConversationEntry) -> PromptAsk:
    """Return the ask of a user message: its last part with words, else its last part that a person may have written.

    Clients add parts of their own around a prompt, and these begin with a tag.
    """
    asks = [read_ask(text) for text in entry.texts]
    scripted = [ask for ask in asks if ask.scripted]
    written = [ask for ask in asks if not ask.is_tagged]
    return (scripted or written or asks or [PromptAsk()])[-1]


def _with_function(ask: PromptAsk, functions: Functions) -> PromptAsk:
    """Return the ask with the call of the client's function that it is about, if it has no words."""
    call = None if ask.scripted else functions.find_call(ask.rest, by_words=not ask.is_tagged)
    return ask if call is None else replace(ask, calls=(call,), native=True)


def _read_progress(since: Sequence[ConversationEntry]) -> _Progress:
    rounds = complaints = 0
    results: list[str] = []
    speech = before = ""
    for entry in since:
        if entry.kind in ("call", "broken_call", "answer"):
            if entry.kind == "call" and before != "call":  # calls side by side are one round
                rounds, results = rounds + 1, []
            speech = entry.kind
        elif speech == "call" or (entry.kind == "result" and speech != "broken_call"):
            results.append(entry.text)
        else:
            complaints += 1
        before = entry.kind
    return _Progress(rounds, complaints, tuple(results))


def _has_calls(ask: PromptAsk, *, progress: _Progress) -> bool:
    """Return whether the answer is a round of calls; a client's function is called only before any result."""
    return progress.rounds < ask.wanted_rounds and (ask.scripted or not progress.results)


def _choose_calls(ask: PromptAsk, *, progress: _Progress) -> tuple[ScriptedCall, ...]:
    """Return the calls of the next round."""
    calls = []
    for call in ask.calls or (DEFAULT_CALL,):
        arguments = call.arguments.replace(STEP, str(progress.rounds + 1))
        if ask.risk_level is not None:
            inside = arguments[1:-1].strip()
            arguments = f'{{{inside}{", " if inside else ""}"risk_level": {_quote_text(ask.risk_level)}}}'
        if ask.native and _is_broken(ask, progress=progress):
            arguments = arguments[:-1]
        calls.append(ScriptedCall(call.name, arguments))
    return tuple(calls)


def _get_text(ask: PromptAsk, *, progress: _Progress, calls: Sequence[ScriptedCall]) -> tuple[str, ...]:
    if ask.events is not None and not calls:
        return tuple(f"word{number} " for number in range(1, ask.events + 1))
    text = (
        _render_prompted_calls(calls, ask=ask, progress=progress)
        if calls
        else _render_text_answer(ask, progress=progress)
    )
    return split_pieces(f"<think>{THOUGHT}</think>\n{text}" if ask.thinking == "tag" else text)


def _render_prompted_calls(calls: Sequence[ScriptedCall], *, ask: PromptAsk, progress: _Progress) -> str:
    """Return the calls in the JSON format that a system prompt requires."""
    last = progress.rounds + 1 == ask.wanted_rounds
    terminate = "true" if ask.terminate and last else "false"
    written = [
        f'{{"tool": {_quote_text(call.name)}, "parameters": {call.arguments}, "terminate": {terminate}}}'
        for call in calls
    ]
    text = written[0] if len(written) == 1 else f"[{', '.join(written)}]"
    return text[:-1] if _is_broken(ask, progress=progress) else text


def _is_broken(ask: PromptAsk, *, progress: _Progress) -> bool:
    return progress.rounds == 0 and progress.complaints < ask.broken


def _render_text_answer(ask: PromptAsk, *, progress: _Progress) -> str:
    """Return the text answer: the results of the last round when there are any, else the prompt's words."""
    if progress.results:
        results = "\n".join(_clip_text(result) for result in progress.results)
        return f"Demo model: round {progress.rounds} of tool calls is done. The result: {results}"
    if ask.summary:
        return _clip_text(_summarise_result(ask.rest))
    return f'{GREETING} You said: "{_clip_text(ask.rest)}"' if ask.rest else f"{GREETING} You said nothing."


def _summarise_result(text: str) -> str:
    """Return the first sentence after the first empty line; for a table, its number of rows and the first row."""
    below = text.partition("\n\n")[2].strip() or text
    try:
        table = orjson.loads(below)
        columns, rows = ", ".join(map(str, table["columns"])), [", ".join(map(str, row)) for row in table["rows"]]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        sentence = _SENTENCE.match(below)
        return " ".join((sentence[0] if sentence is not None else below).split())
    if not columns and isinstance(changed := table.get("changed"), int):
        return f"{_format_row_count(changed)} changed."
    first = f"; the first: {rows[0]}" if rows else ""
    return f"{_format_row_count(len(rows))} of {columns or 'nothing'}{first}."


def _format_row_count(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def _clip_text(text: str) -> str:
    return text if len(text) <= _QUOTE_CHARS else f"{text[:_QUOTE_CHARS]}..."


def _quote_text(text: str) -> str:
    return orjson.dumps(text).decode()
