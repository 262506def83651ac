"""The calls of the model in one run, for a timeline: when each began, how long it took, who answered, its tokens.

They are stored with the progress of the run, so they cost no write of their own. The newest ones are stored.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

import orjson

from gateway.contracts.exchange import AnsweredBy
from gateway.contracts.model_names import MODEL_CHARS
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.usage import TurnUsage

#: Entries of one run.
MOST: Final = 1000
_FIELDS: Final = (
    "round",
    "started_at",
    "spent_s",
    "model",
    "prompt_tokens",
    "completion_tokens",
    "upstream",
    "endpoint",
)


class ModelCalls:
    """The model calls of one run, in their order; one that failed or was dropped is one of them."""

    def __init__(self) -> None:
        self.by: AnsweredBy | None = None  # who answers the call under way, or answered the last one
        self._entries: list[Sequence[object]] = []

    def time_call(self, round_: int, *, model: object, usage: TurnUsage, clock: Clock) -> "TimedCall":
        """Return the context manager that adds the call made inside. `round_` is the round that its answer may begin.

        `model` is the requested one. It stands for that of the answer where neither the answer nor `by` names one.
        """
        usage.settle()
        self.by = None
        return TimedCall(self, round_, model, usage, clock)

    def add(self, entry: Sequence[object]) -> None:
        """Add the facts of one call, in the order of `_FIELDS`."""
        self._entries.append(entry)
        del self._entries[:-MOST]

    def build_finish_event(self, step: int) -> Json:
        """Return the event behind the answer of a model call: which upstream and model gave it, if one did."""
        told = {} if self.by is None else {"upstream": self.by.upstream, "model": self.by.model}
        return chunks.build_event({"type": "step.finished", "step": step, **told})

    def take_snapshot(self) -> Sequence[Sequence[object]]:
        return self._entries

    def restore(self, snapshot: Sequence[Sequence[object]]) -> None:
        self._entries = list(snapshot)


class TimedCall:
    """One call of the model: it begins with `with`, and is added behind it. A generator costs more."""

    __slots__ = ("_began_s", "_calls", "_clock", "_model", "_round", "_started_s", "_usage")

    def __init__(self, calls: ModelCalls, round_: int, model: object, usage: TurnUsage, clock: Clock) -> None:
        self._calls = calls
        self._round = round_
        self._model = model
        self._usage = usage
        self._clock = clock

    def __enter__(self) -> None:
        self._started_s, self._began_s = self._clock.time(), self._clock.monotonic()

    def __exit__(self, *_: object) -> None:
        answered, prompt, completion = self._usage.get_reported_usage()
        by = self._calls.by
        name = answered or (self._model if by is None else by.model)
        shown = name[:MODEL_CHARS] if isinstance(name, str) else None
        spent_s = round(self._clock.monotonic() - self._began_s, 3)
        whose = (None, None) if by is None else (by.upstream, by.endpoint)
        self._calls.add((self._round, round(self._started_s, 3), spent_s, shown, prompt, completion, *whose))


def parse_model_calls(progress: bytes) -> list[Json]:
    """Return the model calls in the stored progress of a run. What an earlier version did not store is None."""
    entries = orjson.loads(progress).get("model_calls", ()) if progress else ()
    return [dict(zip_longest(_FIELDS, entry)) for entry in entries]
