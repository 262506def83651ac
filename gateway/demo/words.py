"""The magic words: instructions to the demo model at the beginning of a prompt.

Words are read one after the other from the first character of the prompt; the first text that is not a word ends the
reading, and the rest is ordinary text. A later word wins over an earlier one of the same name, except that each `tool`
and each `native` adds a call.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

MAX_DELAY_S: Final = 600.0
MAX_EVENTS: Final = 10_000
STEP: Final = "$step"

#: The reminders that a program puts in front of a person's words, where its server joins them into one text.
_REMINDERS: Final = re.compile(r"(?>\s*<system-reminder>.*?</system-reminder>)+\s*(?=\S)", re.DOTALL)
_STEP_STAND_IN: Final = "10000"  # a number of the same length, so that the places in the text stay the same

Thinking = Literal["no", "field", "tag"]


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call as the prompt wrote it: `arguments` is JSON text and is passed on letter for letter."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptAsk:
    """The options that the words of one prompt set; the defaults are the plain, immediate answer."""

    scripted: bool = False
    rest: str = ""
    delay_s: float = 0.0
    gap_s: float = 0.0
    events: int | None = None
    status: int | None = None
    cut: bool = False
    thinking: Thinking = "no"
    calls: tuple[ScriptedCall, ...] = ()
    native: bool = False
    rounds: int | None = None
    broken: int = 0
    terminate: bool = False
    risk_level: str | None = None
    summary: bool = False

    @property
    def is_tagged(self) -> bool:
        """Return whether the text begins with a tag, as the parts that clients add around a prompt do."""
        return self.rest.startswith("<")

    @property
    def wanted_rounds(self) -> int:
        """Return how often the model calls tools before it answers with text."""
        if self.rounds is not None:
            return self.rounds
        return 1 if self.calls or self.broken else 0


@dataclass(frozen=True, slots=True)
class PromptWord:
    """One row of the table: how it is written, what it does, and how it changes an Ask (argument, JSON text)."""

    usage: str
    meaning: str
    pattern: re.Pattern[str]
    apply: Callable[[PromptAsk, str, str], PromptAsk]
    takes_object: bool = False


def read_ask(text: str) -> PromptAsk:
    """Read the words at the beginning of `text`; the text after them is the ask's `rest`.

    Reminders of a program in front of a person's words are left out.
    """
    reminders = _REMINDERS.match(text)
    ask, at = PromptAsk(), _find_next_start(text, reminders.end() if reminders else 0)
    while (step := _read_word(text, at, ask=ask)) is not None:
        ask, at = step
    return replace(ask, rest=text[at:].strip())


def format_words_table() -> str:
    """Return the words as a Markdown table, for the README."""
    rows = [f"| `{word.usage}` | {word.meaning} |" for word in WORDS]
    return "\n".join(["| words | what the demo model does |", "|---|---|", *rows]) + "\n"


def _read_word(text: str, at: int, *, ask: PromptAsk) -> tuple[PromptAsk, int] | None:
    for word in WORDS:
        found = word.pattern.match(text, at)
        if found is None:
            continue
        end = _find_object_end(text, found.end()) if word.takes_object else found.end()
        if end is None:
            continue
        changed = word.apply(ask, found[1] if word.pattern.groups else "", text[found.end() : end])
        return replace(changed, scripted=True), _find_next_start(text, end)
    return None


def _find_next_start(text: str, at: int) -> int:
    while at < len(text) and (text[at].isspace() or text[at] in ",;"):
        at += 1
    return at


def _find_object_end(text: str, at: int) -> int | None:
    """Return the end of the JSON object that starts at `at`, or None if there is none."""
    try:
        return json.JSONDecoder().raw_decode(text.replace(STEP, _STEP_STAND_IN), at)[1]
    except (ValueError, RecursionError):
        return None


def _add_call(ask: PromptAsk, name: str, arguments: str) -> PromptAsk:
    return replace(ask, calls=(*ask.calls, ScriptedCall(name, arguments)))


def _compile_word(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(" ", r"\s+") + r"(?=[\s,;]|$)", re.IGNORECASE)


def _call_word(word: str) -> re.Pattern[str]:
    return re.compile(rf"{word}\s+([^\s{{]{{1,200}})\s*(?=\{{)", re.IGNORECASE)


WORDS: Final[tuple[PromptWord, ...]] = (
    PromptWord(
        "slow S",
        "waits S seconds before the first byte",
        _compile_word(r"slow ([0-9]{1,6}(?:\.[0-9]{1,3})?)"),
        lambda ask, seconds, _: replace(ask, delay_s=min(float(seconds), MAX_DELAY_S)),
    ),
    PromptWord(
        "drip MS",
        "waits MS milliseconds between two events of a stream",
        _compile_word(r"drip ([0-9]{1,6})"),
        lambda ask, milliseconds, _: replace(ask, gap_s=min(int(milliseconds) / 1000, MAX_DELAY_S)),
    ),
    PromptWord(
        "long N",
        "answers with N words, in a stream one event each; at most 10,000",
        _compile_word(r"long ([0-9]{1,6})"),
        lambda ask, events, _: replace(ask, events=min(int(events), MAX_EVENTS)),
    ),
    PromptWord(
        "error CODE",
        "answers with this status (400 to 599) and an error body; 429 and 503 carry `Retry-After: 1`",
        _compile_word(r"error ([45][0-9]{2})"),
        lambda ask, status, _: replace(ask, status=int(status)),
    ),
    PromptWord(
        "cut",
        "dies half-way through the body or the stream, without its end",
        _compile_word(r"cut"),
        lambda ask, _argument, _object: replace(ask, cut=True),
    ),
    PromptWord(
        "think tag",
        "begins the text with a `<think>` block",
        _compile_word(r"think tag"),
        lambda ask, _argument, _object: replace(ask, thinking="tag"),
    ),
    PromptWord(
        "think",
        "thinks first, in the field of the API (`reasoning_content`, a reasoning item, a thinking block)",
        _compile_word(r"think"),
        lambda ask, _argument, _object: replace(ask, thinking="field"),
    ),
    PromptWord(
        "tool NAME {...}",
        "calls the tool in the prompted JSON format, then tells its result; several of them make one group; "
        "`$step` in the object becomes the number of the round",
        _call_word("tool"),
        _add_call,
        takes_object=True,
    ),
    PromptWord(
        "native NAME {...}",
        "the same with the native tool calls of the API",
        _call_word("native"),
        lambda ask, name, arguments: replace(_add_call(ask, name, arguments), native=True),
        takes_object=True,
    ),
    PromptWord(
        "steps N",
        "calls its tools in N rounds before it tells the result; alone it calls `execute_sql`",
        _compile_word(r"steps ([0-9]{1,6})"),
        lambda ask, rounds, _: replace(ask, rounds=int(rounds)),
    ),
    PromptWord(
        "terminate",
        'says `"terminate": true` in its last call',
        _compile_word(r"terminate"),
        lambda ask, _argument, _object: replace(ask, terminate=True),
    ),
    PromptWord(
        "risk_level LEVEL",
        "adds this `risk_level` to the parameters of its calls",
        _compile_word(r"risk_level ([^\s,;]{1,50})"),
        lambda ask, level, _: replace(ask, risk_level=level),
    ),
    PromptWord(
        "summarise",
        "answers with the first sentence of the text behind the first empty line, or with how many rows a query found",
        _compile_word(r"summari[sz]e"),
        lambda ask, _argument, _object: replace(ask, summary=True),
    ),
    PromptWord(
        "malformed N",
        "breaks the JSON of its first N calls, until as many complaints stand in the history",
        _compile_word(r"malformed ([0-9]{1,6})"),
        lambda ask, times, _: replace(ask, broken=int(times)),
    ),
    PromptWord(
        "malformed",
        "breaks the JSON of its first call only",
        _compile_word(r"malformed"),
        lambda ask, _argument, _object: replace(ask, broken=1),
    ),
)
