"""The stage `block_list`: requests and answers with certain words, phrases or patterns go no further.

Phrases are found in one pass (Aho-Corasick), however many there are. Neither spelling with look-alike letters, wide
forms, accents or invisible characters, nor the escapes of JSON, nor the pieces of a stream hide them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gateway.aio.cooperative import Work, run_cooperatively
from gateway.plugin import Emit, Exchange, GatewayError, Handler, Host, Json, Plugin, Reply, replace
from gateway.plugin.message_filter import AnswerEndedByRule, change_body, change_calls, screen_reply
from gateway.plugin.safe_regex import Patterns, RuleName, compile_pattern
from gateway.plugin.stream_redactor import ALIKE, Finder, Screen, ScreenRule, Span, screen_text
from gateway.plugin.text import Hit, Phrases, is_whole

#: Longest phrase.
_PHRASE_CHARS: Final = 256
_NO_TOKENS: Final[Json] = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
_Phrase = Annotated[str, Field(min_length=1, max_length=_PHRASE_CHARS)]


class Config(BaseModel):
    """The `with:` of `use: block_list`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["enforce", "shadow"] = Field(
        default="enforce", description="`shadow` changes nothing, and counts what it finds."
    )
    phrases: Mapping[RuleName, tuple[_Phrase, ...]] = Field(
        default={}, description="Words and phrases, by the names of their rules."
    )
    patterns: Patterns = Field(default={}, description="Regular expressions, by the names of their rules.")
    requests: bool = Field(default=True, description="Look into requests.")
    answers: bool = Field(default=True, description="Look into answers.")
    on_block: Literal["completion", "error"] = Field(
        default="completion",
        description="What the client gets: an answer that ends with `content_filter`, or the error `content_blocked`.",
    )
    message: str = Field(
        default="This was blocked by a rule of the gateway: {rule}.",
        description="The text of that answer; `{rule}` is the name of the rule.",
    )

    @field_validator("phrases")
    @classmethod
    def _require_visible_characters(cls, phrases: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        for name, listed in phrases.items():
            for number, phrase in enumerate(listed):
                if not _fold_phrase(phrase):
                    raise ValueError(f"phrase {number} of {name!r} has no visible character")
        return phrases


class PhraseRule:
    """The rule of a list of phrases: whole words, as readers take them (`gateway.plugin.stream_redactor.Rule`).

    Texts are searched without their blanks. An invisible character does as the blank of a phrase.
    """

    def __init__(self, name: str, phrases: Sequence[str]) -> None:
        self.name = name
        self._by_letters: dict[str, list[str]] = {}
        for phrase in sorted({_fold_phrase(phrase) for phrase in phrases}):
            self._by_letters.setdefault(_remove_blanks(phrase), []).append(phrase)
        self._letters = sorted(self._by_letters)
        self._longest = max(map(len, self._letters), default=0)
        self._found = Phrases(self._letters, folded=str, whole=False)

    def build_finder(self, text: str, starts: Sequence[int]) -> Finder:
        """Return the finder of these phrases. Of phrases that begin together it finds the longest."""
        hits = [*self._found.iterate_hits(_remove_blanks(text))]
        found = sorted(self._iterate_spans(text, starts, hits)) if hits else []

        def find(at: int) -> Span | None:
            place = bisect_left(found, (at, -len(text) - 1))
            return (found[place][0], -found[place][1]) if place < len(found) else None

        return find

    def count_stable_chars(self, text: str) -> int:
        """Return where the longest end of the text begins that may become a phrase."""
        letters = _remove_blanks(text[-2 * self._longest :]) if self._longest else ""
        for chars in range(min(self._longest, len(letters)), 0, -1):
            end = letters[-chars:]
            place = bisect_left(self._letters, end)
            if place < len(self._letters) and self._letters[place].startswith(end):
                return _find_start(text, chars)
        return len(text)

    def _iterate_spans(self, text: str, starts: Sequence[int], hits: Sequence[Hit]) -> Iterator[tuple[int, int]]:
        """Yield where phrases begin, and where they end with a minus."""
        places = [place for place, char in enumerate(text) if char != " "]
        for hit in hits:
            inner = places[hit.start : hit.end]
            start, end = inner[0], inner[-1] + 1
            if is_whole(text, start, end, joins=""):
                written = text[start:end]
                if any(_matches_phrase(phrase, written, inner, starts) for phrase in self._by_letters[hit.phrase]):
                    yield start, -end


def _matches_phrase(phrase: str, written: str, places: Sequence[int], starts: Sequence[int]) -> bool:
    """Return whether a phrase stands there, letter by letter at `places`: with its blanks, or what does as one."""
    if written == phrase:
        return True
    at = 0
    for before, place in pairwise(places):
        at += 1
        has_blank, wants_blank = place > before + 1, phrase[at] == " "
        at += wants_blank
        if has_blank != wants_blank and (has_blank or starts[place] <= starts[before] + 1):
            return False
    return True


def _remove_blanks(text: str) -> str:
    return text.replace(" ", "")


def _find_start(text: str, letters: int) -> int:
    """Return where so many letters at the end of a text begin; blanks do not count."""
    at = len(text)
    while letters:
        at -= 1
        letters -= text[at] != " "
    return at


class BlockStage:
    """The stage. A rule that is found in a request blocks it; in an answer, it ends it before the first match."""

    def __init__(self, config: Config, host: Host) -> None:
        self._config = config
        self._counters = host.counters
        self._rules: Sequence[ScreenRule] = [
            *(PhraseRule(name, phrases) for name, phrases in config.phrases.items()),
            *(compile_pattern(name, pattern) for name, pattern in config.patterns.items()),
        ]

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        looks = (
            self._config.requests and exchange.execution.resume is None
        )  # a run that goes on was looked at when it began
        found = await run_cooperatively(self._match_rules(exchange)) if looks else Counter[str]()
        if exchange.dry:
            told = ", ".join(sorted(found)) or "nothing"
            return await call_next(exchange.with_remarks(f"block_list: it found {told}"))
        for rule, count in found.items():
            self._count_matches(rule, count)
        if found and self._config.mode == "enforce":
            return self._block_request(next(iter(found)))
        reply = await call_next(exchange)
        return self._screen_answer(reply) if self._config.answers and self._rules else reply

    def _match_rules(self, exchange: Exchange) -> Work[Counter[str]]:
        """Return the rules that match in a request. The parts of a message are also read as one text."""
        found: Counter[str] = Counter()

        def match_text(text: str) -> Work[str]:
            yield from screen_text(text, self._rules, lambda rule, what: found.update((rule,)) or what, ALIKE)
            return text

        yield from change_body(exchange.body, match_text, names=True)
        for note in exchange.notes:
            yield from match_text(note)
        if not found:
            for text in _join_text_parts(exchange.body):
                yield from match_text(text)
        return found

    def _screen_answer(self, reply: Reply) -> Reply:
        """Return the reply as far as no rule matches."""

        def act(rule: str, text: str) -> str | None:
            self._count_matches(rule, 1)
            return text if self._config.mode == "shadow" else None

        def act_on_text(text: str) -> Work[str]:
            told, ended = yield from screen_text(text, self._rules, act, ALIKE)
            if ended is not None:
                raise AnswerEndedByRule(ended)
            return told

        screening = screen_reply(
            reply,
            lambda: Screen(self._rules, act, ALIKE),
            lambda calls: change_calls(calls, act_on_text),
            over=act_on_text,
            events=act_on_text,
            shadow=self._config.mode == "shadow",
        )

        async def stream(emit: Emit) -> None:
            try:
                await screening.stream(emit)
            except AnswerEndedByRule as ended:
                await reply.release()  # the model need not go on
                await self._end_blocked_answer(emit, ended.rule)

        return replace(screening, stream=stream)

    def _block_request(self, rule: str) -> Reply:
        if self._config.on_block == "error":
            raise self._build_error(rule)

        async def stream(emit: Emit) -> None:
            await self._end_blocked_answer(emit, rule)
            emit({"choices": [], "usage": _NO_TOKENS})

        return Reply(stream)

    async def _end_blocked_answer(self, emit: Emit, rule: str) -> None:
        """End an answer that is blocked. Raises GatewayError if the client is to get an error."""
        if self._config.on_block == "error":
            raise self._build_error(rule)
        end: Json = {"choices": [{"index": 0, "delta": {}, "finish_reason": "content_filter"}]}
        for chunk in (self._config.message.replace("{rule}", rule), end):
            if (pause := emit(chunk)) is not None:
                await pause()

    def _build_error(self, rule: str) -> GatewayError:
        return GatewayError("content_blocked", f"The rule {rule!r} of this gateway blocks it: leave out what it names.")

    def _count_matches(self, rule: str, count: int) -> None:
        self._counters.count("guardrail_findings", count, stage="block_list", rule=rule, mode=self._config.mode)


def _join_text_parts(body: Json) -> list[str]:
    """Return the texts of messages that come in several parts, each as one text."""
    messages = body.get("messages")
    contents = [one.get("content") for one in messages if isinstance(one, dict)] if isinstance(messages, list) else []
    parts = [
        [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
        for content in contents
        if isinstance(content, list)
    ]
    return [between.join(texts) for texts in parts if len(texts) > 1 for between in ("", " ")]


def _fold_phrase(phrase: str) -> str:
    return " ".join(phrase.translate(ALIKE).split())


PLUGIN = Plugin(Config, BlockStage, guards_answers=True)
