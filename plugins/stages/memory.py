"""The memory stage: remembers, recalls and forgets sentences of a caller, and gives the model those that matter.

It acts on a message whose intent is `memory` (the intent stage ran above), and on every request adds what it knows to
the notes. Memories belong to a caller, and to one conversation where the request names one.
"""

import base64
import math
import re
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from gateway.contracts import Exchange, Handler, Host, Plugin, Reply
from gateway.store import Memory
from gateway.wire.intent_memory import MemoryRequest, memory_request
from gateway.wire.intent_quotes import shown_text
from gateway.wire.phrases import fold, last_user_text

#: Of a memory, this much is compared: ranking runs on the event loop, on each request.
_COMPARED_CHARS = 500
#: What is to be forgotten must be at least so alike: half of what was named is in it.
_ALIKE = 0.5

_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_CJK = "\u3041-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
_WORD = re.compile(f"[{_CJK}]+|[^\\W_{_CJK}]+")
#: Words that say nothing about what a sentence is about.
_EMPTY_WORD = re.compile(
    r"(?:an?|the|is|are|am|was|were|be|been|i|me|my|mine|your?|yours|its?|this|that|these|those|to|of|in|on|at|by|for|and"
    r"|or|about|what|who|do|does|did|not|with|as|have|has|had|will|would|can|could|should|please|[我你的了是]|我的|你的)\Z"
)

_REMEMBERED = "What you remember about this user:"
_DELETED = "These memories were deleted just now, as the user asked; say so:"


class Config(BaseModel):
    """The `with:` of `use: memory`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_memories: int = Field(default=200, ge=1, description="How many memories of a caller are kept: the newest.")
    max_chars: int = Field(default=2000, ge=1, description="Where a sentence to remember is cut off, in characters.")
    max_recalled: int = Field(default=8, ge=0, description="How many memories a request gets without asking for them.")
    max_note_chars: int = Field(default=4000, ge=200, description="Room for memories in a prompt, in characters.")


class MemoryStage:
    """Adds to `exchange.notes` what was remembered or forgotten, and the memories that are most like the message."""

    def __init__(self, config: Config, host: Host) -> None:
        self._config = config
        self._host = host

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        known = await self._host.store.memories(
            tenant=exchange.caller.tenant, caller=exchange.caller.name, conversation=exchange.conversation
        )
        text = last_user_text(exchange.body.get("messages"))
        request = _request(exchange, text)
        notes: list[str] = []
        if request is not None and request.action == "remember":
            notes.append(await self._remember(exchange, _about(text, request), known))
        elif request is not None and request.action == "forget":
            note, known = await self._forget(exchange, request, _about(text, request), known)
            notes.append(note)
        everything = request is not None and request.action == "recall"
        shown = rank(known, text, limit=len(known) if everything else self._config.max_recalled)
        if shown:
            notes.append(block(shown, max_chars=self._config.max_note_chars))
        elif everything:
            notes.append("You remember nothing about this user yet.")
        return await call_next(replace(exchange, notes=(*exchange.notes, *notes)) if notes else exchange)

    async def _remember(self, exchange: Exchange, about: str, known: Sequence[Memory]) -> str:
        text = about[: self._config.max_chars].strip()
        if not text:
            return "The user asked you to remember something, but named nothing. Ask what it is."
        if any(memory.text == text for memory in known):
            return f"You remember this already: {text!r}. Tell the user so."
        memory = Memory(
            id=new_memory_id(),
            tenant=exchange.caller.tenant,
            caller=exchange.caller.name,
            conversation=exchange.conversation,
            text=text,
            created_s=self._host.clock.time(),
        )
        if not exchange.dry:
            await self._host.store.remember(memory, limit=self._config.max_memories)
        cut = f", cut off after {self._config.max_chars} characters" if len(about) > self._config.max_chars else ""
        return f"This was stored just now, as the user asked{cut}: {text!r}. Confirm it to the user."

    async def _forget(
        self, exchange: Exchange, request: MemoryRequest, about: str, known: Sequence[Memory]
    ) -> tuple[str, Sequence[Memory]]:
        gone = list(known) if request.everything else most_alike(known, about)
        if not gone:
            return (
                "The user asked you to forget something, but no memory matches it. Nothing was deleted; say so.",
                known,
            )
        ids = [memory.id for memory in gone]
        if not exchange.dry:
            await self._host.store.forget(ids, tenant=exchange.caller.tenant, caller=exchange.caller.name)
        note = block(gone, max_chars=self._config.max_note_chars, head=_DELETED)
        return note, [memory for memory in known if memory.id not in ids]


def _request(exchange: Exchange, text: str) -> MemoryRequest | None:
    """What to do: once, not again in the rounds of tools that follow the same message."""
    if exchange.intent is None or exchange.intent.kind != "memory":
        return None
    messages = exchange.body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "user":
        return None
    folded = fold(text).text
    return memory_request(folded, shown=shown_text(folded))


def _about(text: str, request: MemoryRequest) -> str:
    """What the request is about, as it was written, on one line."""
    start, end = request.about
    if start >= end:
        return ""
    start, end = fold(text).span(start, end)
    return _BLANK.sub(" ", text[start:end]).strip()


def new_memory_id() -> str:
    """`mem_` and 26 characters of base32: 130 random bits."""
    return "mem_" + base64.b32encode(secrets.token_bytes(17)).decode().lower()[:26]


def block(memories: Sequence[Memory], *, max_chars: int, head: str = _REMEMBERED) -> str:
    """One line each under `head`, as far as they fit into `max_chars`; the first that does not fit is cut off."""
    lines = [head]
    room = max_chars - len(head)
    for memory in memories:
        line = "- " + _BLANK.sub(" ", memory.text)
        lines.append(line if len(line) < room else line[: max(0, room - 2)] + "…")
        room -= len(line) + 1
        if room < len("\n- …"):
            break
    return "\n".join(lines)


def tokens(text: str) -> frozenset[str]:
    """The words of `text` without those that say nothing and without a plural's s; of CJK, each pair of characters."""
    found: set[str] = set()
    for match in _WORD.finditer(fold(text[:_COMPARED_CHARS]).text):
        word = match[0]
        if "\u3041" <= word[0] <= "\ud7a3" and len(word) > 1:
            found.update(word[i : i + 2] for i in range(len(word) - 1))
        else:
            found.add(word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word)
    return frozenset(word for word in found if not _EMPTY_WORD.match(word))


def rank(memories: Sequence[Memory], text: str, *, limit: int) -> Sequence[Memory]:
    """The `limit` memories most like `text`, best first; of equals, the newest. `memories` come oldest first."""
    if not memories:
        return ()
    asked = tokens(text)
    told = [tokens(memory.text) for memory in memories]
    weight = _weights(told)
    scores = [sum(sorted(map(weight, asked & words))) for words in told]
    order = sorted(range(len(memories)), key=lambda i: (-scores[i], -i))
    return [memories[i] for i in order[:limit]]


def most_alike(memories: Sequence[Memory], about: str) -> Sequence[Memory]:
    """The memory that is about `about`, with its equals; none where at most half of what is named is in one."""
    named = tokens(about)
    told = [tokens(memory.text) for memory in memories]
    weight = _weights(told)

    def total(words: Collection[str]) -> float:
        return sum(sorted(map(weight, words)))

    shared = [total(named & words) for words in told]
    alike = [
        2 * common / (total(named) + total(words)) if common and common >= _ALIKE * total(named) else 0.0
        for common, words in zip(shared, told, strict=True)
    ]
    best = max(alike, default=0.0)
    return [memory for memory, score in zip(memories, alike, strict=True) if best and score == best]


def _weights(told: Sequence[Collection[str]]) -> Callable[[str], float]:
    """How much a word tells: the fewer memories have it, the more."""
    having = Counter(word for words in told for word in words)
    return lambda word: math.log(1 + len(told) / (having[word] or 0.5))


def build(config: Config, host: Host) -> MemoryStage:
    return MemoryStage(config, host)


PLUGIN = Plugin(Config, build)
