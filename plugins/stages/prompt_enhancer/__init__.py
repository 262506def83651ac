"""The prompt enhancer: one system message in front of a request, made of base prompt, tools, context and notes.

The requirements call it SystemPromptEnhancerService.
Rule 1: the order is fixed and the cacheable parts come first, so that the caches of upstreams hit, too.
Rule 2: nothing awaits between the look into the cache and the entry made for it, so concurrent misses compute once.
Rule 3: the client's body is copied, never changed.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from cachetools import LRUCache, TTLCache
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gateway.plugin import (
    Caller,
    EnhancedPrompt,
    Exchange,
    GatewayError,
    Handler,
    Host,
    Json,
    Plugin,
    Reply,
    ToolSpec,
    list_client_tools,
    may_call_tools,
    parse_positive_seconds,
    replace,
)

from .mermaid import MERMAID
from .selection import ToolText, select, write_tool_texts, write_whole_text
from .tool_prompt import INSTRUCTIONS, count_utf8_bytes, estimate_tokens

log = logging.getLogger("gateway")

_BYTES_PER_TOKEN = 4
_SEPARATOR = "\n\n"
#: Distinct warnings about the size until tools or prompts change: each message may rank the tools in its own way.
_WARNINGS = 64
_NOBODY = Caller(name="", tenant="", scopes=frozenset())

_Key: TypeAlias = tuple[str | None, str | None, str, bool, bool, tuple[ToolText, ...] | None]
#: Selections of tools whose texts are kept, the last used ones.
_SELECTIONS = 64


class Config(BaseModel):
    """The `with:` of the stage."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tools: bool = Field(default=True, description="Tell the model how to call tools, and which there are.")
    mermaid: bool = Field(default=False, description="Tell the model when and how to draw Mermaid diagrams.")
    custom_context: str | None = Field(default=None, description="A text for every request; null: none.")
    cache_ttl: Annotated[float, BeforeValidator(parse_positive_seconds)] = Field(
        default=300.0, description="How long an enhanced prompt is kept, such as 5m."
    )
    cache_size: int = Field(default=1024, ge=1, le=1_000_000, description="Enhanced prompts that are kept at once.")
    max_tokens: int = Field(
        default=8000, ge=1, description="Estimated tokens beyond which tools are shortened, then left out."
    )


@dataclass(frozen=True, slots=True)
class PromptPart:
    """The part of a prompt that can be cached: `text` is `before`, the whole text of `tools`, and `after`."""

    before: str
    tools: tuple[ToolText, ...]
    after: str
    text: str
    size_bytes: int
    tools_bytes: int
    made_s: float


@dataclass(slots=True)
class FittedPrompt:
    """A prompt as it goes out, with the names of the tools that are shortened or missing because of its size.

    It is not changed after it is made.
    """

    text: str
    size_bytes: int
    truncated: bool = False
    shortened: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()


class PromptEnhancer:
    """The stage, and the `Enhancer` behind GET /v1/system-prompts/{id}/enhanced."""

    def __init__(self, config: Config, host: Host) -> None:
        self._config = config
        self._host = host
        # Toggles are not part of the key: a stage has one configuration for life.
        self._parts: TTLCache[_Key, PromptPart] = TTLCache(
            config.cache_size, config.cache_ttl, timer=host.clock.monotonic
        )
        self._all_tools: tuple[ToolText, ...] | None = None
        # By the identities of the tools, which each entry holds: none of them can be another one's meanwhile.
        self._selected: LRUCache[tuple[int, ...], tuple[Sequence[ToolSpec], tuple[ToolText, ...]]]
        self._selected = LRUCache(_SELECTIONS)
        self._versions: tuple[str, int] | None = None
        self._warned: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        base = None
        if exchange.prompt is not None:
            base = await self._host.prompts.read_text(exchange.prompt, tenant=exchange.caller.tenant)
            if base is None:
                raise GatewayError(
                    "prompt_not_found",
                    "No system prompt has this id; GET /v1/system-prompts lists those there are.",
                    param="x-context-prompt",
                )
        fitted = self._fit_prompt(self._get_part(exchange, base), notes=exchange.notes, body=exchange.body)
        self._record_prompt_size(fitted)
        if not fitted.text:
            return await call_next(exchange)
        return await call_next(replace(exchange, body=with_system(exchange.body, fitted.text)))

    async def enhance_prompt(self, prompt_id: str, *, tenant: str) -> EnhancedPrompt | None:
        """Return the prompt for every plain request of the tenant with this base prompt.

        None: the prompt does not exist.
        """
        base = await self._host.prompts.read_text(prompt_id, tenant=tenant)
        if base is None:
            return None
        plain = Exchange(id="", body={"messages": []}, caller=_NOBODY, chain="", prompt=prompt_id)
        part = self._get_part(plain, base)
        fitted = self._fit_prompt(part, notes=(), body=plain.body)
        age_s = self._host.clock.monotonic() - part.made_s
        max_age_s, tokens = max(0.0, self._config.cache_ttl - age_s), estimate_tokens(fitted.size_bytes)
        return EnhancedPrompt(fitted.text, max_age_s, fitted.omitted, tokens)

    def _get_part(self, exchange: Exchange, base: str | None) -> PromptPart:
        """Return the part from the cache, or make it now. A selection of tools is a part of its key, by their texts."""
        self._drop_outdated()
        with_tools = self._config.tools and may_call_tools(exchange)
        # The intent layer adds the tools of a service as notes; they are called in the same format.
        service = (
            with_tools and exchange.intent is not None and any(map(exchange.steering.allows, exchange.intent.tools))
        )
        # Tenants share no entry unless their texts are equal: the text itself is part of the key.
        selected = self._select_tool_texts(exchange) if with_tools and _selects(exchange) else None
        key = (exchange.prompt, base, self._host.tools.version, with_tools, service, selected)
        part = self._find_cached_part(key)
        self._host.counters.count("prompt_cache_requests", result="miss" if part is None else "hit")
        if part is None:
            tools = (self._list_tool_texts(exchange) if selected is None else selected) if with_tools else ()
            part = self._parts[key] = self._build_part(base, tools, instructed=bool(tools) or service)
        clashes = _find_clashes(exchange.body, part.tools)
        if not clashes:
            return part
        rest = tuple(tool for tool in part.tools if tool.name not in clashes)
        return self._build_part(base, rest, instructed=bool(rest) or service)

    def _find_cached_part(self, key: _Key) -> PromptPart | None:
        try:
            return self._parts[key]
        except KeyError:
            return None

    def _list_tool_texts(self, exchange: Exchange) -> tuple[ToolText, ...]:
        """Return the texts of all tools that are offered, which are made once."""
        if self._all_tools is None:
            self._all_tools = write_tool_texts(self._host.tools.get_offered(exchange))
        return self._all_tools

    def _select_tool_texts(self, exchange: Exchange) -> tuple[ToolText, ...]:
        """Return the texts of the tools that a request selects."""
        offered = self._host.tools.get_offered(exchange)
        key = tuple(map(id, offered))
        if (known := self._selected.get(key)) is None:
            known = self._selected[key] = offered, write_tool_texts(offered)
        return known[1]

    def _drop_outdated(self) -> None:
        versions = (self._host.tools.version, self._host.prompts.version)
        if versions == self._versions:
            return
        if self._versions is not None:
            for reason, now, before in zip(("tools", "prompts"), versions, self._versions, strict=True):
                if now != before:
                    self._host.counters.count("prompt_cache_invalidations", reason=reason)
        self._parts.clear()
        self._all_tools = None
        self._selected.clear()
        self._warned.clear()
        self._versions = versions

    def _build_part(self, base: str | None, tools: tuple[ToolText, ...], *, instructed: bool) -> PromptPart:
        before = _join_texts((base, INSTRUCTIONS if instructed else None))
        after = _join_texts((MERMAID if self._config.mermaid else None, self._config.custom_context))
        listed = write_whole_text(tools)
        text = _join_texts((before, listed, after))
        made_s = self._host.clock.monotonic()
        return PromptPart(before, tools, after, text, count_utf8_bytes(text), count_utf8_bytes(listed), made_s)

    def _fit_prompt(self, part: PromptPart, *, notes: Sequence[str], body: Json) -> FittedPrompt:
        text, size_bytes = part.text, part.size_bytes
        if notes:
            text = _join_texts((text, *notes))
            size_bytes = count_utf8_bytes(text)
        limit_bytes = self._config.max_tokens * _BYTES_PER_TOKEN
        if size_bytes <= limit_bytes:
            return FittedPrompt(text, size_bytes)
        room_bytes = limit_bytes - (size_bytes - part.tools_bytes)
        chosen = select(part.tools, question=_find_last_question(body), room_bytes=room_bytes)
        text = _join_texts((part.before, chosen.text, part.after, *notes))
        return FittedPrompt(
            text, count_utf8_bytes(text), truncated=True, shortened=chosen.shortened, omitted=chosen.omitted
        )

    def _record_prompt_size(self, fitted: FittedPrompt) -> None:
        self._host.counters.observe("prompt_tokens", estimate_tokens(fitted.size_bytes))
        if not fitted.truncated:
            return
        self._host.counters.count("prompt_truncations")
        names = (fitted.shortened, fitted.omitted)
        if names in self._warned or len(self._warned) >= _WARNINGS:
            return
        self._warned.add(names)
        log.warning(
            "an enhanced prompt is larger than max_tokens (%d): shortened %s, left out %s; it has about %d tokens now: "
            "raise max_tokens, shorten descriptions or offer fewer tools",
            self._config.max_tokens,
            _format_names(fitted.shortened),
            _format_names(fitted.omitted),
            estimate_tokens(fitted.size_bytes),
        )


def _selects(exchange: Exchange) -> bool:
    """Return whether the request has a selection of tools of its own."""
    return bool(exchange.steering.only_tools or exchange.steering.services)


def with_system(body: Json, text: str) -> Json:
    """Return a copy of `body` with one system message: `text`, then the client's own system messages."""
    own: list[str] = []
    rest: list[object] = []
    for message in _read_messages(body):
        if isinstance(message, dict) and message.get("role") in ("system", "developer"):
            own.append(_get_text(message))
        else:
            rest.append(message)
    return {**body, "messages": [{"role": "system", "content": _join_texts((text, *own))}, *rest]}


def _find_last_question(body: Json) -> str:
    for message in reversed(_read_messages(body)):
        if isinstance(message, dict) and message.get("role") == "user":
            return _get_text(message)
    return ""


def _read_messages(body: Json) -> list[object]:
    messages = body.get("messages")
    return messages if isinstance(messages, list) else []


def _get_text(message: Json) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def _find_clashes(body: Json, tools: Sequence[ToolText]) -> frozenset[str]:
    """Return the names of gateway tools that the client gives to its own tools: the client's win."""
    return list_client_tools(body).intersection(tool.name for tool in tools)


def _join_texts(texts: Iterable[str | None]) -> str:
    return _SEPARATOR.join(text for text in texts if text)


def _format_names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


PLUGIN = Plugin(Config, PromptEnhancer, only_adds=True, tool_format=lambda config: "json" if config.tools else None)
