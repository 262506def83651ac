"""The response cache: the answer to an equal model request, from memory, while it is fresh.

It is the last stage of a chain, so its key is what the model would get: memories, notes, tools and their results are in
it. Whatever changes one of them makes another request. Kept are whole answers without tool calls, each as the chunks
that the model sent; streams and whole answers come from the same entry.
"""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import orjson
from cachetools import TTLCache
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gateway.plugin import (
    CacheResult,
    Chunk,
    Emit,
    Exchange,
    Handler,
    Host,
    Json,
    Pause,
    Plugin,
    Reply,
    lets_server_search,
    may_call_tools,
    parse_positive_seconds,
    replace,
)

#: Longest answer that is kept.
_ANSWER_BYTES: Final = 1 << 20
#: Memory of an entry besides its answer: key, times and links.
_ENTRY_BYTES: Final = 512
#: Chunks of a kept answer that are emitted before others get their turn.
_TURN: Final = 256
#: Fields of a request that control how its answer is sent, and do not change the answer.
_FORM: Final = frozenset(("stream", "stream_options"))
_DIRECTIVE: Final = re.compile(rb"(?:\A|,)\s*(no-cache|no-store|max-age)\s*(?:=\s*\"?([0-9]{1,9})\"?)?\s*(?=,|\Z)")
_NO_TOKENS: Final[Json] = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


class Config(BaseModel):
    """The `with:` of `use: response_cache`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ttl: Annotated[float, BeforeValidator(parse_positive_seconds)] = Field(
        default=300.0, description="How long an answer is kept, such as 5m."
    )
    max_entries: int = Field(default=10_000, ge=1, description="Answers that one worker keeps at once.")
    max_bytes: int = Field(default=67_108_864, ge=4096, description="Memory for the answers of one worker, in bytes.")
    any_temperature: bool = Field(
        default=False, description="Also keep answers to requests with neither `temperature: 0` nor a `seed`."
    )
    shared_by: Literal["user", "key", "tenant"] = Field(
        default="key", description="Whose requests may get the same answer: those of an end user, a key or a tenant."
    )
    vary: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")], ...] = Field(
        default=("openai-organization", "openai-project", "openai-beta", "anthropic-beta"),
        description="Header fields of clients that make requests different.",
    )
    wait: Annotated[float, BeforeValidator(parse_positive_seconds)] = Field(
        default=30.0, description="How long a request waits for the answer to an equal one that is under way."
    )


@dataclass(frozen=True, slots=True)
class _CachedAnswer:
    """An answer: its chunks as JSON, and when it came."""

    chunks: bytes
    since_s: float


@dataclass(slots=True)
class _Flight:
    """A request under way, for whose answer equal ones wait. `in_vain`: it ended without an answer to keep."""

    over: asyncio.Event = field(default_factory=asyncio.Event)
    in_vain: bool = False


class ResponseCache:
    """The stage. Nothing awaits between the look into the cache and the flight made for it: equal requests fly once."""

    def __init__(self, config: Config, host: Host) -> None:
        self._config = config
        self._host = host
        self._vary = tuple(sorted({name.lower().encode() for name in config.vary}))
        self._kept: TTLCache[bytes, _CachedAnswer] = TTLCache(
            config.max_bytes,
            config.ttl,
            timer=host.clock.monotonic,
            getsizeof=lambda kept: len(kept.chunks) + _ENTRY_BYTES,
        )
        self._flights: dict[bytes, _Flight] = {}

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        fields = _select_fields(exchange.origin.header)
        wants = {name.decode(): age for name, age in _DIRECTIVE.findall(fields.get(b"cache-control", b"").lower())}
        why = "Cache-Control: no-store" if "no-store" in wants else self._find_bypass_reason(exchange.body)
        key = None if why else self._hash_request(exchange, fields)
        if key is None:
            return await self._bypass_cache(exchange, call_next, why or "it is nested too deeply")
        max_age_s = 0.0 if "no-cache" in wants else float(wants.get("max-age") or "inf")
        if exchange.dry:
            found = "an answer is kept" if self._find_fresh_answer(key, max_age_s) else "no answer is kept yet"
            return await call_next(_with_remark(exchange, found))
        while max_age_s:
            if (kept := self._find_fresh_answer(key, max_age_s)) is not None:
                self._count_result("hit")
                return _replay_answer(kept)
            if (flight := self._flights.get(key)) is None:
                return await self._ask_and_share(key, exchange, call_next)
            if not await self._await_flight(flight):
                break
        return await self._ask_model(key, exchange, call_next, None)

    async def _bypass_cache(self, exchange: Exchange, call_next: Handler, why: str) -> Reply:
        if exchange.dry:
            return await call_next(_with_remark(exchange, f"its answer is not kept: {why}"))
        self._count_result("bypass")
        return replace(await call_next(exchange), cache="bypass")

    def _find_bypass_reason(self, body: Json) -> str:
        """Return why no answer to such a request is kept, or "".

        An answer of a model that searches by itself depends on more than the request.
        """
        if lets_server_search(body):
            return "its model may search"
        temperature, seed = body.get("temperature"), body.get("seed")
        is_same = (temperature == 0 and not isinstance(temperature, bool)) or isinstance(seed, int)
        return "" if is_same or self._config.any_temperature else "it has neither temperature 0 nor a seed"

    def _hash_request(self, exchange: Exchange, fields: Mapping[bytes, bytes]) -> bytes | None:
        """Return the hash of all that an answer depends on, or None if it cannot be written.

        The client's own credential is a part of it: who may not ask the upstream gets no answer of it.
        """
        caller, shared_by = exchange.caller, self._config.shared_by
        whose = [caller.tenant]
        if shared_by != "tenant":
            whose.append(caller.name)
        if shared_by == "user" and exchange.user is not None:
            whose.append(exchange.user)
        asked = {name: value for name, value in exchange.body.items() if name not in _FORM}
        facts = (whose, exchange.prompt, exchange.notes, asked)
        try:
            parts = [orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)]
        except orjson.JSONEncodeError:
            return None
        parts += [fields.get(name, b"") for name in self._vary]
        parts.append(exchange.origin.credential)
        digest = hashlib.sha256()
        for part in parts:
            digest.update(b"%d:" % len(part))
            digest.update(part)
        return digest.digest()

    def _find_fresh_answer(self, key: bytes, max_age_s: float) -> _CachedAnswer | None:
        kept = self._kept.get(key)
        if kept is None or self._host.clock.monotonic() - kept.since_s > max_age_s:
            return None
        return kept

    async def _await_flight(self, flight: _Flight) -> bool:
        """Wait for an equal request. Return whether to look again: its answer was kept, or its client gave it up."""
        try:
            async with asyncio.timeout(self._config.wait):
                await flight.over.wait()
        except TimeoutError:
            return False
        return not flight.in_vain

    async def _ask_and_share(self, key: bytes, exchange: Exchange, call_next: Handler) -> Reply:
        """Call the model once, for this request and for equal requests that arrive meanwhile."""
        flight = self._flights[key] = _Flight()
        try:
            return await self._ask_model(key, exchange, call_next, flight)
        except BaseException as error:
            self._end_flight(key, flight, in_vain=isinstance(error, Exception))
            raise

    async def _ask_model(self, key: bytes, exchange: Exchange, call_next: Handler, flight: _Flight | None) -> Reply:
        """Return the model's reply, which is kept once it has ended well."""
        self._count_result("miss")
        reply = await call_next(exchange)
        may_call = may_call_tools(exchange) and bool(
            self._host.tools.get_offered(exchange) or self._host.tools.list_services()
        )
        taking = _AnswerCollector(may_call=may_call)

        async def stream(emit: Emit) -> None:
            def take(chunk: Chunk) -> Pause | None:
                taking.add(chunk)
                return emit(chunk)

            try:
                await reply.stream(take)
            except BaseException as error:
                self._end_flight(key, flight, in_vain=isinstance(error, Exception))
                raise
            chunks = taking.get_whole()
            if chunks is not None:
                self._store_answer(key, chunks)
            self._end_flight(key, flight, in_vain=chunks is None)

        async def release() -> None:
            self._end_flight(key, flight, in_vain=False)  # nothing, unless its client left before the end
            await reply.release()

        return replace(reply, stream=stream, release=release, cache="miss")

    def _end_flight(self, key: bytes, flight: _Flight | None, *, in_vain: bool) -> None:
        if flight is not None and self._flights.get(key) is flight:
            del self._flights[key]
            flight.in_vain = in_vain
            flight.over.set()

    def _store_answer(self, key: bytes, chunks: bytes) -> None:
        kept = _CachedAnswer(chunks, self._host.clock.monotonic())
        if len(chunks) + _ENTRY_BYTES <= self._config.max_bytes:
            self._kept[key] = kept
            while len(self._kept) > self._config.max_entries:
                self._kept.popitem()

    def _count_result(self, result: CacheResult) -> None:
        self._host.counters.count("response_cache_requests", result=result)


class _AnswerCollector:
    """The chunks of one answer as they come. `may_call`: the model may write a call of a tool into its text."""

    def __init__(self, *, may_call: bool) -> None:
        self._may_call = may_call
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._finish: str | None = None
        self._says = False
        self._spoiled = False

    def add(self, chunk: Chunk) -> None:
        if self._spoiled:
            return
        if isinstance(chunk, str):
            self._read(chunk)
            self._append(chunk)
        elif "choices" in chunk:  # else it is a mark, of no answer
            for choice in chunk["choices"] or ():
                self._spoiled = self._spoiled or choice.get("index", 0) != 0
                self._finish = choice.get("finish_reason") or self._finish
                self._read_delta(choice.get("delta") or {})
            rest = {name: value for name, value in chunk.items() if name != "usage"}
            if chunk["choices"] or rest.keys() - {"id", "object", "created", "model", "choices"}:
                self._append(rest)

    def get_whole(self) -> bytes | None:
        """Return the chunks as a JSON array, or None if the answer is none that is kept."""
        if self._spoiled or self._finish != "stop" or not self._says:
            return None
        return b"[" + b",".join(self._pieces) + b"]"

    def _read_delta(self, delta: Json) -> None:
        if delta.get("tool_calls") or delta.get("function_call"):
            self._spoiled = True
        content = delta.get("content")
        if isinstance(content, str):
            self._read(content)
        elif content:
            self._read(str(content))

    def _read(self, text: str) -> None:
        """Read a piece of the text. Every call in a text has a brace (docs/approvals.md)."""
        self._says = self._says or bool(text)
        self._spoiled = self._spoiled or (self._may_call and "{" in text)

    def _append(self, chunk: Chunk) -> None:
        try:
            piece = orjson.dumps(chunk)
        except orjson.JSONEncodeError:
            self._spoiled = True
            return
        self._pieces.append(piece)
        self._bytes += len(piece) + 1
        if self._bytes > _ANSWER_BYTES:
            self._spoiled = True
        if self._spoiled:
            self._pieces.clear()


def _replay_answer(kept: _CachedAnswer) -> Reply:
    """Return a kept answer as a reply. It cost no tokens."""

    async def stream(emit: Emit) -> None:
        usage = {**_NO_TOKENS, "cached_answers": 1}
        for count, chunk in enumerate((*orjson.loads(kept.chunks), {"choices": [], "usage": usage}), start=1):
            if (pause := emit(chunk)) is not None:
                await pause()
            elif count % _TURN == 0:
                await asyncio.sleep(0)

    return Reply(stream, cache="hit")


def _select_fields(header: bytes) -> dict[bytes, bytes]:
    """Return the client's header fields that go on to the model, by their names in lower case."""
    fields: dict[bytes, bytes] = {}
    for line in header.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon:
            name = name.lower()
            fields[name] = b",".join((fields[name], value.strip())) if name in fields else value.strip()
    return fields


def _with_remark(exchange: Exchange, remark: str) -> Exchange:
    return exchange.with_remarks(f"response_cache: {remark}")


PLUGIN = Plugin(Config, ResponseCache, last=True)
