"""The thoughts of an answer as entries that come in pieces (`reasoning_details`, `thinking_blocks`), for guard stages.

A model's server may send thoughts twice, in `reasoning_content` and so. A word that begins in one piece may end in the
next, so each thought has a filter of its own. What the filter holds back comes before anything behind the thought. The
signature of a thought proves its exact text: one that was changed loses it, as its model would refuse it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from gateway.aio.cooperative import Work
from gateway.contracts.storage.store import Json
from gateway.dialects.extra_message_fields import OPAQUE
from gateway.plugin.stream_redactor import TextFilter, feed_in_pieces

#: Changes a value that is no piece of a thought.
ChangeValue: TypeAlias = Callable[[object], Work[object]]
#: The fields with a piece of a thought.
_TEXTS: Final = ("text", "summary", "thinking")
_SIGNATURE: Final = "signature"
_KEPT: Final = OPAQUE | {"index", "after_text", "after_calls"}
#: The fields by which the pieces of one entry are known.
_ABOUT: Final = ("type", "format", "index")


@dataclass(slots=True)
class _ThoughtText:
    """A thought under way. `key` is the field of its text, and `unsent` what its filter has of it."""

    about: Json
    key: str
    filter: TextFilter
    unsent: str = ""
    is_changed: bool = False

    def has_place(self, entry: Mapping[str, object]) -> bool:
        """Return whether an entry goes on with this thought."""
        return all(entry.get(name) == self.about.get(name) for name in ("type", "index"))

    def note_sent(self, text: str) -> str:
        """Return the text that may be sent, and note whether it is the model's own."""
        self.is_changed |= not self.unsent.startswith(text)
        self.unsent = self.unsent[len(text) :]
        return text

    def finish(self) -> str:
        """Return what was held back."""
        text = self.note_sent("" if self.filter.ended else self.filter.finish())
        self.is_changed |= bool(self.unsent)
        self.unsent = ""
        return text


class ThoughtFilters:
    """The filters of the thoughts of one answer, one thought at a time. `ended`: a filter has ended the answer.

    `n_finished` counts the thoughts whose end has come.
    """

    def __init__(self, new_filter: Callable[[], TextFilter], change: ChangeValue) -> None:
        self.ended: str | None = None
        self.n_finished = 0
        self._new_filter = new_filter
        self._change = change
        self._thought: _ThoughtText | None = None

    @property
    def holds_back(self) -> bool:
        """Return whether a part of a thought has not been sent yet."""
        return self._thought is not None and bool(self._thought.unsent)

    def screen(self, entries: Sequence[object]) -> Work[list[object]]:
        """Return what may be sent of the pieces in one chunk."""
        told: list[object] = []
        for entry in entries:
            is_piece = isinstance(entry, dict) and any(isinstance(entry.get(key), str) for key in (*_TEXTS, _SIGNATURE))
            if self._thought is not None and not (isinstance(entry, dict) and self._thought.has_place(entry)):
                told += self.finish()
            if isinstance(entry, dict) and is_piece:
                told += yield from self._screen_piece(entry)
            else:
                told.append((yield from self._change(entry)))
        return told

    def finish(self) -> list[Json]:
        """Return what was held back of the thought under way, which has ended."""
        thought, self._thought = self._thought, None
        if thought is None:
            return []
        text = self._finish_text(thought)
        return [{**thought.about, thought.key: text}] if text else []

    def _screen_piece(self, entry: Json) -> Work[list[Json]]:
        """Return a piece of a thought, behind what a signature in it no longer holds back."""
        key = next((key for key in _TEXTS if isinstance(entry.get(key), str)), None)
        thought = self._thought
        if thought is None:
            about: Json = {name: entry[name] for name in _ABOUT if name in entry}
            thought = self._thought = _ThoughtText(about, key or _TEXTS[0], self._new_filter())
        fields: Json = {}
        for name, value in entry.items():
            if name == key:
                fields[name] = yield from self._feed(thought, value)
            elif name != _SIGNATURE:
                fields[name] = value if name in _KEPT else (yield from self._change(value))
        if not entry.get(_SIGNATURE):
            return [fields]
        held = self._finish_text(thought)
        if key is not None:
            fields[key] += held
        elif held:
            fields[thought.key] = held
        thought.filter = self._new_filter()
        return [fields if thought.is_changed else {**fields, _SIGNATURE: entry[_SIGNATURE]}]

    def _finish_text(self, thought: _ThoughtText) -> str:
        """Return what was held back of a thought."""
        text = thought.finish()
        self.ended = self.ended or thought.filter.ended
        self.n_finished += 1
        return text

    def _feed(self, thought: _ThoughtText, text: str) -> Work[str]:
        thought.unsent += text
        told = yield from feed_in_pieces(thought.filter, text)
        self.ended = self.ended or thought.filter.ended
        return thought.note_sent(told)
