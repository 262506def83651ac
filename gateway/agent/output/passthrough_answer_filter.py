"""The answer of a model that no agent loop reads: as it came, but without ids of approvals in its text.

What clients of the API could not read is put as they read it: parts of a text, and calls that share a number.
"""

from gateway.agent.answer import Further, build_too_deep_error
from gateway.agent.output.call_ids import CallIds
from gateway.contracts.exchange import Chunk, Emit, Exchange, Handler, Pause, Reply
from gateway.contracts.records import replace
from gateway.contracts.storage.store import Json
from gateway.dialects.extra_message_fields import FieldAccumulator, TooDeepError, remove_approval_ids
from gateway.dialects.id_scrubbing import Defuser
from gateway.dialects.message_identity import split_spoken_parts
from gateway.runs.live_run import ANSWERS

#: The client's own calls go on as they came, but for an id or an index that does not name one call.
_CALLS = ("tool_calls", "function_call")


def with_safe_answers(handler: Handler) -> Handler:
    """Return `handler` with its answers made safe to show."""

    async def handle(exchange: Exchange) -> Reply:
        reply = await handler(exchange)

        async def stream(emit: Emit) -> None:
            emit({ANSWERS: reply})
            shown = _AnswerFilter()

            def take(chunk: Chunk) -> Pause | None:
                if isinstance(chunk, str):
                    text = shown.text.feed(chunk)
                    return emit(text) if text else None
                try:
                    return emit(shown.filter_chunk(chunk))
                except TooDeepError:
                    raise build_too_deep_error() from None

            await reply.stream(take)

        return replace(reply, stream=stream)

    return handle


class _AnswerFilter:
    """The part of one answer that may be shown. Text that was held back comes with the finish reason."""

    def __init__(self) -> None:
        self.text = Defuser()
        self._further = Further()
        self._ids = CallIds()

    def filter_chunk(self, chunk: Json) -> Json:
        """Return a chunk with its first choice only, and without approval ids. Raises TooDeepError."""
        told: Json = {"usage": chunk["usage"]} if "usage" in chunk else {}
        told |= self._further.take_new_fields(chunk)
        told["choices"] = []
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) == 0:
                told |= self._further.take_new_choice_fields(choice)
                about = {key: choice[key] for key in ("index", "finish_reason") if key in choice}
                told["choices"].append({**about, "delta": self._filter_delta(choice)})
        return told

    def _filter_delta(self, choice: Json) -> Json:
        """Return the delta of a choice without approval ids, and at its end the text held back."""
        delta: Json = {}
        for key, value in _normalize_content(choice.get("delta") or {}).items():
            if key in _CALLS or key == "role":
                remove_approval_ids(value)  # which raises where it is too deep
                delta[key] = self._ids.assign_ids(value) if key == "tool_calls" and isinstance(value, list) else value
            elif key == "content":
                delta[key] = self.text.feed(value) if isinstance(value, str) else remove_approval_ids(value)
            elif (shown := self._further.beside.feed(key, value)) is not None:
                delta[key] = shown
        if choice.get("finish_reason"):
            rest = self._further.beside.end_round()
            for key, value in {**rest, "content": self.text.finish() or None}.items():
                whole = FieldAccumulator()
                whole.add(key, delta.get(key))
                whole.add(key, value)
                if (shown := whole.get_whole()[key]) is not None:
                    delta[key] = shown
        return delta


def _normalize_content(delta: Json) -> Json:
    """Return a delta whose content is a text, if it came as a list of texts and thoughts."""
    content = delta.get("content")
    if not isinstance(content, list) or (spoken := split_spoken_parts(content)) is None:
        return delta
    text, thought = spoken
    return {**delta, "content": text, **({"reasoning_content": thought} if thought else {})}
