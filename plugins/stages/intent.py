"""The intent stage: what the last user message asks of the gateway itself, and the tools of services that it asks for.

First match wins: an explicit call of a tool or service, a service's trigger keyword, a request about memories, a wish
to be asked before anything is done, else normal (requirement MCP Intent Recognition). Answers to pending approvals are
recognised before any chain runs.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from gateway.contracts import Exchange, Handler, Host, Intent, Plugin, Reply, Service
from gateway.wire.chat_request import client_tools
from gateway.wire.intent_ask import asks_before
from gateway.wire.intent_calls import Call, find_calls
from gateway.wire.intent_memory import memory_request
from gateway.wire.intent_names import Named, NamedService, NameIndex, model_name, name_index, phrase_set
from gateway.wire.intent_quotes import code_blocks, shown_text
from gateway.wire.phrases import Folded, Hit, Spans, fold, last_user_text

#: One sentence of a tool's description, at most.
_SENTENCE_CHARS = 200
_SENTENCE = re.compile(r".*?(?:[.!?](?=\s|\Z)|[。！？]|\Z)", re.DOTALL)
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")

_AVAILABLE = "These tools can be called now, in the JSON format for tool calls:"
_GO_ON = "Say so in a friendly way, and help without it as far as you can."


class Config(BaseModel):
    """The `with:` of `use: intent`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    exclude_keywords: list[str] = Field(
        default=[],
        description="Phrases inside which no trigger keyword counts, for false friends such as `under the weather`.",
    )
    max_described: int = Field(
        default=64, ge=1, description="How many tools of a service are described in a prompt, one line each."
    )


class IntentStage:
    """Sets `exchange.intent`, and adds one line per matched tool to the notes; without a match, nothing of services."""

    def __init__(self, config: Config, host: Host) -> None:
        self._config = config
        self._host = host

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        text = last_user_text(exchange.body.get("messages"))
        services = self._host.tools.services()
        offered = (spec.name for spec in self._host.tools.offered(exchange))
        own = frozenset(name.casefold() for name in (*offered, *client_tools(exchange.body)))
        intent = recognise(text, services, own=own, exclude_keywords=self._config.exclude_keywords)
        self._host.counters.count("intent", intent=intent.kind, layer=layer(intent))
        note = mcp_note(intent, services, limit=self._config.max_described)
        notes = (*exchange.notes, note) if note else exchange.notes
        reply = await call_next(replace(exchange, intent=intent, notes=notes))
        return replace(reply, intent=intent)


def recognise(
    text: str, services: Sequence[Service], *, own: Collection[str] = (), exclude_keywords: Sequence[str] = ()
) -> Intent:
    """What `text` asks for. Never raises; linear in the text, of which the first 20,000 characters count.

    `own`: folded names of tools that are no service's: the model has them anyway, so naming one is nothing special.
    """
    folded = fold(text)
    index = name_index(tuple(NamedService(s.name, s.trigger_keywords, tuple(s.tools)) for s in services))
    hits = tuple(index.phrases.hits(folded.text))
    code, shown = code_blocks(folded.text), shown_text(folded.text)
    refused: set[int] = set()
    for call in find_calls(text, folded, index, hits, shown=shown):
        if not call.refused and (call.named or call.name.casefold() not in own):
            return _explicit(call, folded, services)
        refused.update(named.service for named in call.named)
    excluded = Spans((hit.start, hit.end) for hit in phrase_set(tuple(exclude_keywords)).hits(folded.text))
    counting = [hit for hit in hits if not excluded.cover(hit.start, hit.end) and not code.cover(hit.start, hit.end)]
    usable = frozenset(i for i, service in enumerate(services) if service.running and i not in refused)
    return _keyword(counting, index, usable, shown, folded, services) or _request(folded, shown)


def _explicit(call: Call, folded: Folded, services: Sequence[Service]) -> Intent:
    span = folded.span(call.start, call.end)
    if not call.named:
        absent = f"The {call.kind or 'tool'} {call.name!r} is not available: no such one is registered. {_GO_ON}"
        return Intent("mcp", "explicit:unknown", span, None, (call.name,), absent)

    def preference(named: Named) -> tuple[bool, bool, bool]:
        return named.weak, not services[named.service].running, (named.tool is None) != (call.kind == "service")

    named = min(call.named, key=preference)
    service = services[named.service]
    what = "tool" if named.tool else "service"
    tools = tuple(f"{service.name}.{tool}" for tool in ([named.tool] if named.tool else service.tools))
    reply: str | None = None
    if not service.running:
        reply = f"The {what} {named.tool or service.name!r} is not available: its service is not running. {_GO_ON}"
        tools = tools if named.tool else ()
    rule = "explicit:keyword" if named.weak and not named.tool else f"explicit:{what}"
    return Intent("mcp", rule, span, service.name, tools, reply)


def _keyword(
    hits: Sequence[Hit],
    index: NameIndex,
    usable: frozenset[int],
    shown: Spans,
    folded: Folded,
    services: Sequence[Service],
) -> Intent | None:
    """The longest keyword, then the earliest, then the first service; a quoted one only where there is no other."""
    found = [
        (shown.cover(hit.start, hit.end), hit.start - hit.end, hit.start, i, keyword)
        for hit in hits
        for i, keyword in index.keywords.get(hit.phrase, ())
        if i in usable
    ]
    if not found:
        return None
    _, size, start, i, keyword = min(found)
    service = services[i]
    tools = tuple(f"{service.name}.{tool}" for tool in service.tools)
    return Intent("mcp", f"keyword:{keyword}", folded.span(start, start - size), service.name, tools)


def _request(folded: Folded, shown: Spans) -> Intent:
    memory = memory_request(folded.text, shown=shown)
    if memory is not None:
        return Intent("memory", f"memory:{memory.action}", folded.span(memory.start, memory.end))
    ask = asks_before(folded.text, shown=shown)
    if ask is not None:
        return Intent("hitl", "hitl:ask_before", folded.span(*ask))
    return Intent("normal", "normal")


def layer(intent: Intent) -> str:
    """What decided, as a label: explicit, keyword, phrase or none."""
    how = intent.rule.partition(":")[0]
    return {"explicit": "explicit", "keyword": "keyword", "normal": "none"}.get(how, "phrase")


def mcp_note(intent: Intent, services: Sequence[Service], *, limit: int) -> str | None:
    """What the prompt says of an mcp intent: name and one sentence per tool, or that there is none; never a schema."""
    if intent.kind != "mcp":
        return None
    if intent.reply is not None:
        return intent.reply
    lines = list(_described(intent, services))
    more = [f"... and {len(lines) - limit} more of this service."] if len(lines) > limit else []
    about = [
        f"{service.name}: {one_sentence(service.description)}"
        for service in services
        if service.name == intent.service and service.description not in ("", service.name)
    ]
    return "\n".join([_AVAILABLE, *about, *lines[:limit], *more]) if lines else None


def _described(intent: Intent, services: Sequence[Service]) -> Iterator[str]:
    matched = frozenset(intent.tools)
    for service in services:
        for tool, description in service.tools.items():
            inside = f"{service.name}.{tool}"
            if service.name == intent.service and inside in matched:
                accepted = "" if tool in service.changed else description  # who wrote the other one is not known
                said = one_sentence(accepted) or one_sentence(service.description) or service.name
                yield f"- {model_name(inside)}: {said}"


def one_sentence(description: str) -> str:
    """The first sentence on one line: descriptions come from services, and must not add lines to a prompt."""
    flat = _BLANK.sub(" ", description[: 4 * _SENTENCE_CHARS]).strip()
    match = _SENTENCE.match(flat)
    sentence = match[0] if match else flat
    return sentence if len(sentence) <= _SENTENCE_CHARS else sentence[: _SENTENCE_CHARS - 1].rstrip() + "…"


def build(config: Config, host: Host) -> IntentStage:
    return IntentStage(config, host)


PLUGIN = Plugin(Config, build)
