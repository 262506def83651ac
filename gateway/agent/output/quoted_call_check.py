"""The calls of an answer that the model may only repeat, because they stand in texts that others wrote.

Such a call needs a person's approval, whatever its level.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gateway.agent.output.quote_matcher import Quote
from gateway.contracts.calls import FoundCall
from gateway.dialects.chat_request import list_provider_blocks
from gateway.dialects.document_texts import iterate_leaf_texts

#: Longer texts are searched in a thread, so that others do not wait for it.
THREAD_CHARS = 1 << 16
#: The roles of messages that others wrote: users' messages and the results of tools.
_OTHERS = frozenset(("user", "tool", "function"))


async def mark_quoted_calls(
    calls: Sequence[FoundCall],
    messages: Iterable[Mapping[str, object]],
    *,
    notes: Iterable[str] = (),
    besides: Collection[str],
) -> tuple[FoundCall, ...]:
    """Return the calls, each with a doubt if these messages or notes contain the same call.

    Notes hold memories, which users wrote. Calls of tools in `besides` are not looked at.
    """
    ours = [call for call in calls if call.doubt is None and call.tool not in besides]
    if not ours:
        return tuple(calls)
    texts = [*_iterate_foreign_texts(messages), *notes]
    if sum(map(len, texts)) + sum(len(repr(call.parameters)) for call in ours) < THREAD_CHARS:
        return _mark_quoted(calls, texts, besides)
    return await asyncio.to_thread(_mark_quoted, calls, texts, besides)


def _mark_quoted(calls: Sequence[FoundCall], texts: Sequence[str], besides: Collection[str]) -> tuple[FoundCall, ...]:
    """Return the calls, each with the doubt `quoted` if one of the texts contains it."""
    return tuple(
        replace(call, doubt="quoted")
        if call.doubt is None and call.tool not in besides and any(map(Quote(call).has_match, texts))
        else call
        for call in calls
    )


def _iterate_foreign_texts(messages: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Yield the texts of messages whose author is not the model, and of tools that its server has run by itself."""
    for message in messages:
        yield from map(_join_texts, list_provider_blocks(message))
        if message.get("role") not in _OTHERS:
            continue
        content = message.get("content")
        parts: Iterable[object] = content if isinstance(content, list) else (content,)
        for part in parts:
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                yield text
            elif isinstance(part, dict):  # such as a document, or a result of a search
                yield _join_texts(part)


def _join_texts(value: object) -> str:
    """Return all texts in a value as one: a call may stand in several blocks of a document."""
    return "\n".join(iterate_leaf_texts(value))
