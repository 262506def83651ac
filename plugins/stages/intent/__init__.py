"""The intent stage: it finds the requests to the gateway itself, and to tools of services, in the last user message.

The first kind that matches wins (requirement MCP Intent Recognition):
1. Explicit calls of tools and services.
2. Trigger keywords of services.
3. A request about memories.
4. A request for approval before each action.
5. Else normal.

All tools and services that one message names are offered. Answers to pending approvals are recognised before any chain
runs.
"""

import dataclasses
import re
from collections.abc import Collection, Iterator, Sequence

from pydantic import BaseModel, ConfigDict, Field

from gateway.plugin import (
    Exchange,
    Handler,
    Host,
    Intent,
    MemoryIntent,
    Plugin,
    Reply,
    Service,
    encode_model_name,
    find_last_user_text,
    list_client_tools,
    may_call_tools,
    replace,
)
from gateway.plugin.text import (
    FoldedText,
    Hit,
    Spans,
    find_ask_request,
    find_memory_request,
    find_shown_text,
    fold,
    list_code_blocks,
)

from .calls import CallMention, find_calls
from .names import NamedService, NameIndex, NameMeaning, build_name_index, build_phrase_set

#: One sentence of a tool's description, at most.
_SENTENCE_CHARS = 200
#: The most replies about missing tools in one prompt.
_REPLIES = 5
_SENTENCE = re.compile(r".*?(?:[.!?](?=\s|\Z)|[。！？]|\Z)", re.DOTALL)
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")

#: The layers by the beginning of a rule; any other rule is a phrase.
_LAYERS = {"explicit": "explicit", "keyword": "keyword", "normal": "none"}
_NORMAL = Intent("normal", "normal")

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
    """The stage that sets `exchange.intent` and adds one line per matched tool to the notes.

    Without a match it adds none.
    """

    def __init__(self, config: Config, host: Host) -> None:
        self._config = config
        self._host = host

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        text = find_last_user_text(exchange.body.get("messages"))
        services = self._host.tools.list_services()
        offered = (spec.name for spec in self._host.tools.get_offered(exchange))
        own = frozenset(name.casefold() for name in (*offered, *list_client_tools(exchange.body)))
        intent = recognise(text, services, own=own, exclude_keywords=self._config.exclude_keywords)
        self._host.counters.count("intent", intent=intent.kind, layer=name_layer(intent))
        note = write_mcp_note(intent, list_describable(services, exchange), limit=self._config.max_described)
        notes = (*exchange.notes, note) if note else exchange.notes
        reply = await call_next(replace(exchange, intent=intent, notes=notes))
        return replace(reply, intent=intent)


def recognise(
    text: str, services: Sequence[Service], *, own: Collection[str] = (), exclude_keywords: Sequence[str] = ()
) -> Intent:
    """Return the intent of `text`. Never raises. Takes linear time in the text, whose first 20,000 characters count.

    The first match decides the rule. The tools are of all matches, because one message may name several services.
    `own`: folded names of tools outside of services. The model has them anyway, so naming one has no effect here.
    """
    folded = fold(text)
    index = build_name_index(tuple(NamedService(s.name, s.trigger_keywords, tuple(s.tools)) for s in services))
    hits = tuple(index.phrases.iterate_hits(folded.text))
    shown = find_shown_text(folded.text)
    found: list[Intent] = []
    refused: set[int] = set()
    called: list[tuple[int, int]] = []
    for call in find_calls(text, folded, index, hits, shown=shown):
        if call.refused:
            refused.update(named.service for named in call.named)
        elif call.named or call.name.casefold() not in own:
            found.append(_find_explicit(call, folded, services))
            called.append((call.start, call.end))
    if hits:
        excluded = build_phrase_set(tuple(exclude_keywords)).iterate_hits(folded.text)
        covering = (Spans((hit.start, hit.end) for hit in excluded), list_code_blocks(folded.text), Spans(called))
        counting = [hit for hit in hits if not any(spans.cover(hit.start, hit.end) for spans in covering)]
        named = {intent.service for intent in found}
        usable = frozenset(i for i, s in enumerate(services) if s.running and i not in refused and s.name not in named)
        keywords = _find_keywords(counting, index, usable, shown, folded, services)
        found += [intent for intent, quoted in keywords if not quoted] or (
            [intent for intent, _ in keywords[:1]] if not found else []
        )
    return _merge_intents(found) if found else _read_request(text, folded, shown)


def _merge_intents(found: Sequence[Intent]) -> Intent:
    """Merge the intents: the first, with the tools of all and the replies about missing tools."""
    tools = tuple(dict.fromkeys(tool for intent in found for tool in intent.tools))
    replies = [*dict.fromkeys(intent.reply for intent in found if intent.reply is not None)]
    return dataclasses.replace(found[0], tools=tools, reply="\n".join(replies[:_REPLIES]) or None)


def _find_explicit(call: CallMention, folded: FoldedText, services: Sequence[Service]) -> Intent:
    span = folded.find_original_span(call.start, call.end)
    if not call.named:
        absent = f"The {call.kind or 'tool'} {call.name!r} is not available: no such one is registered. {_GO_ON}"
        return Intent("mcp", "explicit:unknown", span, None, (call.name,), absent)

    def find_preference(named: NameMeaning) -> tuple[bool, bool, bool]:
        return named.weak, not services[named.service].running, (named.tool is None) != (call.kind == "service")

    named = min(call.named, key=find_preference)
    service = services[named.service]
    what = "tool" if named.tool else "service"
    tools = tuple(f"{service.name}.{tool}" for tool in ([named.tool] if named.tool else service.tools))
    reply: str | None = None
    if not service.running:
        reply = f"The {what} {named.tool or service.name!r} is not available: its service is not running. {_GO_ON}"
        tools = tools if named.tool else ()
    rule = "explicit:keyword" if named.weak and not named.tool else f"explicit:{what}"
    return Intent("mcp", rule, span, service.name, tools, reply)


def _find_keywords(
    hits: Sequence[Hit],
    index: NameIndex,
    usable: frozenset[int],
    shown: Spans,
    folded: FoldedText,
    services: Sequence[Service],
) -> list[tuple[Intent, bool]]:
    """Return one intent for each service that is meant, and whether its keyword is quoted.

    A keyword means the first service that has it. It counts only where no longer one covers it. Keywords that are not
    quoted come first, then the longest, then the earliest.
    """
    found = sorted(
        (shown.cover(hit.start, hit.end), hit.start - hit.end, hit.start, i, keyword)
        for hit in hits
        for i, keyword in [pair for pair in index.keywords.get(hit.phrase, ()) if pair[0] in usable][:1]
    )
    longest = Spans((start, start - size) for _, size, start, *_ in found)
    intents: dict[int, tuple[Intent, bool]] = {}
    for quoted, size, start, i, keyword in found:
        covered = longest.cover(start - 1, start - size) or longest.cover(start, start - size + 1)
        if i not in intents and not covered:
            service = services[i]
            tools = tuple(f"{service.name}.{tool}" for tool in service.tools)
            span = folded.find_original_span(start, start - size)
            intents[i] = (Intent("mcp", f"keyword:{keyword}", span, service.name, tools), quoted)
    return list(intents.values())


def _read_request(text: str, folded: FoldedText, shown: Spans) -> Intent:
    request = find_memory_request(folded.text, shown=shown)
    if request is not None:
        start, end = request.about
        about = text[slice(*folded.find_original_span(start, end))] if start < end else ""
        memory = MemoryIntent(request.action, about, request.everything, request.every)
        span = folded.find_original_span(request.start, request.end)
        return Intent("memory", f"memory:{memory.action}", span, memory=memory)
    ask = find_ask_request(folded.text, shown=shown)
    if ask is not None:
        return Intent("hitl", "hitl:ask_before", folded.find_original_span(*ask))
    return _NORMAL


def name_layer(intent: Intent) -> str:
    """Return the layer that decided, as a label: explicit, keyword, phrase or none."""
    return _LAYERS.get(intent.rule.partition(":")[0], "phrase")


def list_describable(services: Sequence[Service], exchange: Exchange) -> Sequence[Service]:
    """Return the services with the tools that a note may describe: the ones that the request allows, and does not name.

    Tools of services that it names are offered anyway. A tool that has the name of one of the client's gets no call.
    """
    if not may_call_tools(exchange):
        return ()
    theirs = list_client_tools(exchange.body)
    if not (exchange.steering.only_tools or exchange.steering.services or theirs):
        return services

    def is_described(name: str) -> bool:
        return exchange.steering.allows(name) and encode_model_name(name) not in theirs

    return [
        dataclasses.replace(
            service, tools={t: line for t, line in service.tools.items() if is_described(f"{service.name}.{t}")}
        )
        for service in services
        if service.name not in exchange.steering.services
    ]


def write_mcp_note(intent: Intent, services: Sequence[Service], *, limit: int) -> str | None:
    """Return the note for the prompt of an mcp intent: name and one sentence per tool, or that there is none.

    The note never contains a schema.
    """
    if intent.kind != "mcp":
        return None
    matched = frozenset(intent.tools)
    lines = [
        line for service in services if service.running for line in _describe_service(service, matched, limit=limit)
    ]
    absent = [] if intent.reply is None else [intent.reply]
    return "\n".join([*([_AVAILABLE, *lines] if lines else ()), *absent]) or None


def _describe_service(service: Service, matched: Collection[str], *, limit: int) -> Iterator[str]:
    """Yield lines for the service and for its matched tools, at most `limit` of them."""
    tools = [tool for tool in service.tools if f"{service.name}.{tool}" in matched]
    if tools and service.description not in ("", service.name):
        yield f"{service.name}: {cut_first_sentence(service.description)}"
    for tool in tools[:limit]:
        accepted = "" if tool in service.changed else service.tools[tool]  # who wrote the other one is not known
        said = cut_first_sentence(accepted) or cut_first_sentence(service.description) or service.name
        yield f"- {encode_model_name(f'{service.name}.{tool}')}: {said}"
    if len(tools) > limit:
        yield f"... and {len(tools) - limit} more of this service."


def cut_first_sentence(description: str) -> str:
    """Return the first sentence on one line. Descriptions come from services, and must not add lines to a prompt."""
    flat = _BLANK.sub(" ", description[: 4 * _SENTENCE_CHARS]).strip()
    match = _SENTENCE.match(flat)
    sentence = match[0] if match else flat
    return sentence if len(sentence) <= _SENTENCE_CHARS else sentence[: _SENTENCE_CHARS - 1].rstrip() + "…"


def build(config: Config, host: Host) -> IntentStage:
    return IntentStage(config, host)


PLUGIN = Plugin(Config, build, only_adds=True)
