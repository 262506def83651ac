"""The memory stage: it remembers, recalls and forgets sentences of an end user, and gives the model the relevant ones.

It acts on a message whose intent is `memory` (the intent stage ran above). On every request it adds relevant memories
to the notes. Memories belong to the end user whom the client names (`exchange.user`), in all of the user's
conversations. If no end user is named, they belong to the key, and to one conversation where the request names one. The
answer's `context.memory` reports stored and deleted memories, and so does an event (`memory.kept`, `memory.forgotten`).
"""

import base64
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from gateway.plugin import (
    Emit,
    Exchange,
    Handler,
    Host,
    Json,
    Memory,
    MemoryIntent,
    PartialError,
    Plugin,
    RecalledMemory,
    Reply,
    StoreError,
    find_last_user_text,
    get_memory_owner,
    replace,
)
from gateway.plugin.text import extract_keywords

#: What is to be forgotten must be at least so alike: half of what was named is in it.
_ALIKE = 0.5
#: Memories that are looked at for the one that is to be forgotten, or that was kept before.
_LOOKED_AT = 200
#: Memories that an answer's `context.memory` names.
_TOLD = 20

_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+")

_REMEMBERED = "What you remember about this user:"
_DELETED = "These memories were deleted just now, as the user asked; say so:"
_NO_MATCH = "The user asked you to forget something, but no memory matches it. Nothing was deleted; say so."


class Config(BaseModel):
    """The `with:` of `use: memory`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_memories: int = Field(default=200, ge=1, description="How many memories of an end user are kept: the newest.")
    max_chars: int = Field(default=2000, ge=1, description="Where a sentence to remember is cut off, in characters.")
    max_recalled: int = Field(default=8, ge=0, description="How many memories a request gets without asking for them.")
    max_note_chars: int = Field(default=4000, ge=200, description="Room for memories in a prompt, in characters.")


@dataclass(slots=True)
class _Whose:
    """The owner of the memories that a request sees, with the memories of one conversation if it is not None.

    It is not changed after it is made.
    """

    tenant: str
    owner: str
    conversation: str | None


@dataclass(frozen=True, slots=True)
class _Done:
    """The result of a request: a note for the model, `context.memory` for the client, the ids that are gone."""

    note: str
    told: Json | None = None
    gone: frozenset[str] = frozenset()


class MemoryStage:
    """The stage that adds the results of memory requests, and the memories most like the message, to the notes.

    It writes to `exchange.notes`.
    """

    def __init__(self, config: Config, host: Host) -> None:
        self._config = config
        self._host = host

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        whose, text = _find_owner(exchange), find_last_user_text(exchange.body.get("messages"))
        request = _find_request(exchange)
        done: _Done | None = None
        known: Sequence[Memory] = ()
        if request is not None and request.action == "remember":
            known = await self._recall_memories(text, whose, limit=self._config.max_recalled)
            done = await self._remember_text(exchange, whose, _join_lines(request.about))
        elif request is not None and request.action == "forget":
            done = await self._forget_memories(exchange, whose, request, _join_lines(request.about))
        everything = request is not None and request.action == "recall"
        if done is None or done.gone:
            limit = self._config.max_note_chars // 4 if everything else self._config.max_recalled
            gone = frozenset() if done is None else done.gone
            recalled = await self._recall_memories(text, whose, limit=limit + len(gone) if limit else 0)
            known = [memory for memory in recalled if memory.id not in gone][:limit]
        notes = [] if done is None else [done.note]
        if known:
            notes.append(write_block(known, max_chars=self._config.max_note_chars))
        elif everything:
            notes.append("You remember nothing about this user yet.")
        reply = await call_next(replace(exchange, notes=(*exchange.notes, *notes)) if notes else exchange)
        if done is None or done.told is None or exchange.dry:
            return reply
        return _with_notice(reply, done.told, with_event=exchange.delivery.events)

    async def _recall_memories(self, text: str, whose: _Whose, *, limit: int) -> Sequence[Memory]:
        return [found.memory for found in await self._list_recalled(text, whose, limit=limit)] if limit else ()

    async def _list_recalled(self, text: str, whose: _Whose, *, limit: int) -> Sequence[RecalledMemory]:
        return await self._host.store.recall(
            text, tenant=whose.tenant, owner=whose.owner, conversation=whose.conversation, limit=limit
        )

    async def _remember_text(self, exchange: Exchange, whose: _Whose, about: str) -> _Done:
        text = about[: self._config.max_chars].strip()
        if not text:
            return _Done("The user asked you to remember something, but named nothing. Ask what it is.")
        known = await self._recall_memories(text, whose, limit=_LOOKED_AT)
        created_s = self._host.clock.time()
        memory = Memory(generate_memory_id(), whose.tenant, whose.owner, whose.conversation, text, created_s)
        is_new = all(other.text != text for other in known)
        if is_new and not exchange.dry:
            is_new = await self._host.store.remember(memory, limit=self._config.max_memories)
        if not is_new:
            return _Done(f"You remember this already: {text!r}. Tell the user so.", {"kept": []})
        cut = f", cut off after {self._config.max_chars} characters" if len(about) > self._config.max_chars else ""
        note = f"This was stored just now, as the user asked{cut}: {text!r}. Confirm it to the user."
        return _Done(note, {"kept": [_build_view(memory)]})

    async def _forget_memories(self, exchange: Exchange, whose: _Whose, request: MemoryIntent, about: str) -> _Done:
        found = await self._list_recalled("" if request.everything else about, whose, limit=_LOOKED_AT)
        gone = (
            [each.memory for each in found]
            if request.everything
            else select_memories(found, about, every=request.every)
        )
        if not gone:
            return _Done(_NO_MATCH, {"forgotten": [], "count": 0})
        n_gone, ids, store = len(gone), [memory.id for memory in gone], self._host.store
        if not exchange.dry and request.everything:
            n_gone = await store.forget_all(
                tenant=whose.tenant, owner=whose.owner, conversation=whose.conversation, elsewhere=False
            )
        elif not exchange.dry:
            n_gone = await store.forget(ids, tenant=whose.tenant, owner=whose.owner)
            while request.every and len(found) == _LOOKED_AT:
                try:
                    found = await self._list_recalled(about, whose, limit=_LOOKED_AT)
                    more = [each.memory.id for each in found if each.share == 1]
                    n_gone += await store.forget(more, tenant=whose.tenant, owner=whose.owner) if more else 0
                except StoreError as error:
                    raise PartialError(f"{n_gone} memories are gone, the others are not: {error}") from error
                found = found if more else ()
        note = write_block(gone, max_chars=self._config.max_note_chars, head=_DELETED)
        return _Done(note, {"forgotten": [*map(_build_view, gone[:_TOLD])], "count": n_gone}, frozenset(ids))


def _find_owner(exchange: Exchange) -> _Whose:
    owner = get_memory_owner(user=exchange.user, key=exchange.caller.name)
    return _Whose(exchange.caller.tenant, owner, exchange.conversation if exchange.user is None else None)


def _find_request(exchange: Exchange) -> MemoryIntent | None:
    """Return the request of the message: once, not again in the rounds of tools that follow the same message."""
    if exchange.intent is None or exchange.intent.kind != "memory":
        return None
    messages = exchange.body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return exchange.intent.memory if isinstance(last, dict) and last.get("role") == "user" else None


def _join_lines(text: str) -> str:
    return _BLANK.sub(" ", text).strip()


def generate_memory_id() -> str:
    """Return `mem_` and 26 characters of base32: 130 random bits."""
    return "mem_" + base64.b32encode(secrets.token_bytes(17)).decode().lower()[:26]


def write_block(memories: Sequence[Memory], *, max_chars: int, head: str = _REMEMBERED) -> str:
    """Write one line each under `head`, as far as they fit into `max_chars`. The first that does not fit is cut off."""
    lines = [head]
    room = max_chars - len(head)
    for memory in memories:
        line = "- " + _BLANK.sub(" ", memory.text)
        lines.append(line if len(line) < room else line[: max(0, room - 2)] + "…")
        room -= len(line) + 1
        if room < len("\n- …"):
            break
    return "\n".join(lines)


def select_memories(found: Sequence[RecalledMemory], about: str, *, every: bool) -> Sequence[Memory]:
    """Return the memory that is about `about`, with its equals. Return none if none has half of the named words.

    `every`: return all memories that have all named words, if there are any.
    """
    whole = [each.memory for each in found if each.share == 1]
    if every and whole:
        return whole
    n_named = len(extract_keywords(about))
    alike = [
        (2 * each.share * n_named / (n_named + len(extract_keywords(each.memory.text))), each.memory)
        for each in found
        if each.share >= _ALIKE
    ]
    best = max((score for score, _ in alike), default=0.0)
    return [memory for score, memory in alike if score == best]


def _build_view(memory: Memory) -> Json:
    return {"id": memory.id, "text": memory.text}


def _with_notice(reply: Reply, told: Json, *, with_event: bool) -> Reply:
    """Return the reply with a report to its client of the stored or deleted memories."""
    kind = "memory.kept" if "kept" in told else "memory.forgotten"
    event = {"choices": [], "context": {"type": kind, **told}}

    async def stream(emit: Emit) -> None:
        if with_event and (pause := emit(event)) is not None:
            await pause()
        await reply.stream(emit)
        if (pause := emit({"choices": [], "context": {"memory": told}})) is not None:
            await pause()

    return replace(reply, stream=stream)


def build(config: Config, host: Host) -> MemoryStage:
    return MemoryStage(config, host)


PLUGIN = Plugin(Config, build, only_adds=True)
