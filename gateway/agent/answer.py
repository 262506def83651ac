"""One answer of the model as it streams: its text for the client, and the facts that the loop reads afterwards.

All other fields of the answer go on to the client, whatever they are (gateway/dialects/extra_message_fields.py). None
of them shows the id of an approval: only the gateway's own text does (gateway/dialects/id_scrubbing.py).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gateway.agent.budget import TimeBudget
from gateway.agent.output.fixed_argument_calls import reject_inexact_calls
from gateway.agent.output.scanner import AnswerScanner, CallGroup, Outcome, Prose
from gateway.agent.output.tool_calls import HasTool
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import ANSWER_CHARS, Chunk, Emit, Exchange, Pause, Reply
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.chat_request import names_sources, wants_text
from gateway.dialects.extra_message_fields import (
    ECHOED,
    FieldAccumulator,
    MessageFields,
    TooDeepError,
    remove_approval_ids,
)
from gateway.dialects.id_scrubbing import Defuser
from gateway.dialects.message_identity import TEXT_PARTS, get_content_text
from gateway.dialects.usage import TurnUsage

#: Fields that reach the client in another way. All other fields of an answer, and of its one choice, go on unchanged.
_ABOUT_ANSWER = frozenset(("id", "object", "created", "model", "choices", "usage", "context", "error", "obfuscation"))
_ABOUT_CHOICE = frozenset(("index", "delta", "message", "finish_reason", "logprobs"))
_NONE_EXACT: Final[Mapping[str, Json]] = {}
#: Texts of an answer that its client gets whole are read together up to so many characters.
_JOINED_CHARS: Final = 4096


@dataclass(slots=True)
class Further:
    """The fields that upstreams send in one turn besides texts and calls.

    `beside` are fields of the message, `about` fields of the answer as a whole, `about_choice` fields of its choice.
    """

    beside: MessageFields = field(default_factory=MessageFields)
    about: Json = field(default_factory=dict)
    about_choice: Json = field(default_factory=dict)

    def take_new_fields(self, chunk: Json) -> Json:
        """Return the new fields of a chunk about the answer, under `about`. Raises TooDeepError."""
        further = chunk.keys() - _ABOUT_ANSWER
        return {"about": news} if further and (news := _take_changes(chunk, further, self.about)) else {}

    def take_new_choice_fields(self, choice: Json) -> Json:
        """Return the new fields of the answer's one choice, under `about_choice`. Raises TooDeepError."""
        further = choice.keys() - _ABOUT_CHOICE
        return {"about_choice": news} if further and (news := _take_changes(choice, further, self.about_choice)) else {}


class AnswerReader:
    """The reader of one reply. `spoken` is called with each text for the client and returns the text to send.

    `scans`: the reader looks for calls in its text, too. `exact_tools` come from the exchange. `has_sources`: the
    model's server has read untrusted text by itself. `has_tool` returns whether a tool exists. `joins`: texts in a row
    are read together, since the client gets the answer whole.
    """

    def __init__(
        self,
        *,
        usage: TurnUsage,
        spoken: Callable[[str], str],
        further: Further | None = None,
        scans: bool = True,
        exact_tools: Mapping[str, Json] = _NONE_EXACT,
        has_tool: HasTool | None = None,
        joins: bool = False,
    ) -> None:
        self.reason: str | None = None
        self.has_sources = False
        self._usage = usage
        self._spoken = spoken
        self._scanner = AnswerScanner(has_tool=has_tool)
        self._unread: list[str] | None = None if scans else []
        self._defuser = Defuser()
        self._further = further or Further()
        self._exact_tools = exact_tools
        self._joins = joins
        self._echoed = FieldAccumulator()
        self._content_parts: list[Json] = []  # without the text parts

    @property
    def content(self) -> str:
        """Return the text without the call."""
        return self._scanner.text if self._unread is None else "".join(self._unread)

    async def read(self, reply: Reply, emit: Emit) -> None:
        """Send the client its part of the reply: text that is certainly no call, and fields beside the text."""
        said, feed = self._usage.said, self._scanner.feed if self._unread is None else self._buffer_text
        defused, spoken = self._defuser.feed, self._spoken

        def take(chunk: Chunk) -> Pause | None:
            pause = None
            if not isinstance(chunk, str):
                try:
                    told, chunk = self._split_chunk(chunk)
                except TooDeepError:
                    raise build_too_deep_error() from None
                if told:
                    pause = emit(told)
            if chunk:
                said(chunk)
                if (shown := feed(chunk)) and (shown := defused(shown)) and (told_text := spoken(shown)):
                    pause = emit(told_text) or pause
            return pause

        if self._joins:
            joined = _JoinedTexts(take)
            try:
                await reply.stream(joined.take)
            finally:  # what came before a failure counts as much as it would one by one
                joined.flush()
        else:
            await reply.stream(take)
        if rest := self._further.beside.end_round():
            emit(chunks.build_delta(rest))

    def finish(self) -> tuple[str, Outcome]:
        """Return the text that was held back and turned out not to be a call, and the outcome of the answer."""
        rest, found = self._scanner.finish(finish_reason=self.reason)
        found = reject_inexact_calls(found, self._exact_tools)
        rest = self._defuser.feed(rest) + self._defuser.finish()
        if isinstance(found, CallGroup):
            beside = self._echoed.get_whole()
            if self._content_parts:
                beside["content"] = self._content_parts
            found = replace(found, beside=beside)
        return self._spoken(rest) if rest else "", found

    def _buffer_text(self, text: str) -> str:
        """Keep a text that is not scanned for calls, and return it unchanged."""
        assert self._unread is not None
        self._unread.append(text)
        return text

    def _split_chunk(self, chunk: Json) -> tuple[Json, str]:
        """Return a chunk's fields for the client, and its text. Native tool calls go to the scanner."""
        self._usage.read(chunk)
        self.has_sources = self.has_sources or names_sources(chunk)
        piece: Json = {}
        about = self._further.take_new_fields(chunk)
        texts: list[str] = []
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            self.reason = choice.get("finish_reason") or self.reason
            about |= self._further.take_new_choice_fields(choice)
            for key, value in (choice.get("delta") or {}).items():
                if key == "content":
                    texts.append(value if isinstance(value, str) else self._take_content_parts(value, piece))
                elif key == "tool_calls":
                    self._scanner.feed_native(value or ())
                elif key == "function_call":
                    self._scanner.feed_function_call(value)
                elif value is not None and key != "role":
                    self._add_shown_field(key, value, piece)
        told = {**chunks.build_delta(piece), **about} if piece or about else {}
        return told, "".join(texts)

    def _add_shown_field(self, key: str, value: object, piece: Json) -> None:
        """Put a field into the piece for the client unless it is held back; keep echoed ones."""
        if (shown := self._further.beside.feed(key, value)) is not None:
            piece[key] = shown
        if key in ECHOED:
            self._echoed.add(key, value)

    def _take_content_parts(self, content: object, piece: Json) -> str:
        """Return the text of a content made of parts.

        Thoughts go on under the name that clients read, and other parts unchanged.
        """
        texts = []
        for part in content if isinstance(content, list) else ():
            if not isinstance(part, dict) or part.get("type") in TEXT_PARTS:
                texts.append(get_content_text([part]))
                continue
            self._content_parts.append(part)
            if part.get("type") == "thinking":
                thought = self._further.beside.feed("reasoning_content", get_content_text(part.get("thinking")))
                piece["reasoning_content"] = f"{piece.get('reasoning_content', '')}{thought or ''}"
            else:
                piece.setdefault("content", []).append(remove_approval_ids(part))
        return "".join(texts)


class _JoinedTexts:
    """The texts of an answer that no client sees before its end: those in a row go on as one."""

    __slots__ = ("_chars", "_emit", "_texts")

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._texts: list[str] = []
        self._chars = 0

    def take(self, chunk: Chunk) -> Pause | None:
        """Keep a text, or emit what is kept and then the chunk (`Emit`)."""
        if not isinstance(chunk, str):
            pause = self.flush()
            return self._emit(chunk) or pause
        self._texts.append(chunk)
        self._chars += len(chunk)
        return self.flush() if self._chars >= _JOINED_CHARS else None

    def flush(self) -> Pause | None:
        """Emit the texts that are kept as one."""
        if not self._texts:
            return None
        text = "".join(self._texts)
        self._texts.clear()
        self._chars = 0
        return self._emit(text)


class PlainAnswer:
    """The reader of one reply for its text alone, whatever it looks like. It emits nothing."""

    def __init__(self, *, usage: TurnUsage) -> None:
        self.reason: str | None = None
        self.has_sources = False
        self._usage = usage
        self._content: list[str] = []
        self._chars = 0

    @property
    def content(self) -> str:
        return "".join(self._content)

    async def read(self, reply: Reply, emit: Emit) -> None:
        """Collect the text. Raises GatewayError (upstream_error) if the answer is too long to be stored."""
        del emit

        def take(chunk: Chunk) -> None:
            if isinstance(chunk, str):
                self._append(chunk)
                return
            self._usage.read(chunk)
            self.has_sources = self.has_sources or names_sources(chunk)
            for reason, delta in _iterate_choice_deltas(chunk):
                self.reason = reason or self.reason
                self._append(get_content_text(delta.get("content")))

        await reply.stream(take)

    def _append(self, text: str) -> None:
        """Add a piece of text. Raises GatewayError (upstream_error) beyond ANSWER_CHARS characters."""
        self._usage.said(text)
        self._content.append(text)
        self._chars += len(text)
        if self._chars > ANSWER_CHARS:
            raise GatewayError(
                "upstream_error",
                f"The answer of the model grew over {ANSWER_CHARS} characters and was stopped: ask it for less.",
            )

    def finish(self) -> tuple[str, Outcome]:
        """Return no text and `Prose`: nothing was held back, and no call is looked for."""
        return "", Prose()


def build_reader(
    exchange: Exchange,
    *,
    usage: TurnUsage,
    spoken: Callable[[str], str],
    further: Further,
    has_tool: HasTool | None = None,
    holds_back: bool = False,
    hides_text: bool = False,
) -> AnswerReader | PlainAnswer:
    """Return the reader of a reply to this request. Only an answer in text can contain calls of the gateway's tools.

    `holds_back`: the request leaves the format out. `hides_text`: the client does not see the reply's text.
    """
    if exchange.job.workflow is not None:
        return PlainAnswer(usage=usage)
    scans, exact_tools = holds_back or wants_text(exchange.body), exchange.steering.exact_tools
    spoken = _discard_text if hides_text else spoken
    return AnswerReader(
        usage=usage,
        spoken=spoken,
        further=further,
        scans=scans,
        exact_tools=exact_tools,
        has_tool=has_tool,
        joins=not exchange.delivery.streams,
    )


def _discard_text(_text: str) -> str:
    return ""


def _iterate_choice_deltas(chunk: Json) -> Iterator[tuple[str | None, Json]]:
    """Yield the finish reason and the delta of each choice of a chunk that belongs to the one answer."""
    for choice in chunk.get("choices") or ():
        if choice.get("index", 0) == 0:
            yield choice.get("finish_reason"), choice.get("delta") or {}


def _take_changes(source: Json, keys: Iterable[str], known: Json) -> Json:
    """Return the fields that are new or have changed, and add them to `known`."""
    news = {key: source[key] for key in keys if source[key] is not None and known.get(key) != source[key]}
    known |= news
    return {key: remove_approval_ids(value) for key, value in news.items()}


def build_too_deep_error() -> GatewayError:
    """Return the error of an answer that is nested too deeply to be written again."""
    return GatewayError("upstream_error", "The answer of the model holds a value that is nested too deeply.")


class OpenReply:
    """The reply of a run's model call, if one is open. Release it at its end."""

    def __init__(self, budget: TimeBudget) -> None:
        self._budget = budget
        self.reply: Reply | None = None
        self.has_expired = False  # the time of the run is over
        self.is_dropped = False  # the client of the run is gone
        self._closing: asyncio.Task[None] | None = None

    async def release(self) -> None:
        """Release the reply. Idempotent."""
        reply, self.reply = self.reply, None
        if reply is not None:
            await reply.release()

    def drop_call(self) -> None:
        """End the current model call because its client is gone. The call is made again once a client is back."""
        self.is_dropped = True
        self._budget.interrupt()
        self._closing = asyncio.get_running_loop().create_task(self.release())

    def expire(self) -> None:
        """End the current model call. Its reader gets an error, which becomes the run's timeout."""
        self.has_expired = True
        self._closing = asyncio.get_running_loop().create_task(self.release())
