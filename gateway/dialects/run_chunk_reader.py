"""The chunks of a run, read for a client: what each adds to the answer, and what is known at its end.

Every dialect writes from this one reading.
"""

from dataclasses import dataclass, field

from gateway.contracts.storage.store import Json

_FINISH = frozenset(("stop", "length", "tool_calls", "function_call", "content_filter"))


@dataclass(slots=True, kw_only=True)
class TurnState:
    """The state of one turn so far. `finish` is why it ended, in the words of chat completions."""

    finish: str | None = None
    usage: Json | None = None
    context: Json = field(default_factory=dict)
    about: Json = field(default_factory=dict)  # other fields of the upstream's answer, and of its one choice
    about_choice: Json = field(default_factory=dict)

    def take_chunk(self, chunk: Json) -> tuple[Json, Json | None]:
        """Return the delta of a chunk and its event, if any; finish reason and usage are noted for the end."""
        if isinstance(usage := chunk.get("usage"), dict):
            self.usage = usage
        if "about" in chunk:
            self.about |= chunk["about"]
        if "about_choice" in chunk:
            self.about_choice |= chunk["about_choice"]
        delta: Json = {}
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) == 0:
                reason = choice.get("finish_reason")
                if reason is not None and self.finish is None:
                    self.finish = reason if reason in _FINISH else "stop"
                delta = {k: v for k, v in (choice.get("delta") or {}).items() if k != "role" and v is not None}
        told = chunk.get("context")
        if isinstance(told, dict) and "type" not in told:
            self.context.update(told)
            told = None
        return delta, told
