"""The fields that a model sends beside its text and calls: thoughts, a refusal, images, audio, annotations, and so on.

Clients get all of it, without ids of approvals (gateway/dialects/id_scrubbing.py). `FieldAccumulator` puts together
what came in pieces, as clients do; `ECHOED` is what the model must see again in its next round, and `OPAQUE` what the
gateway never changes.
"""

from collections.abc import Mapping
from typing import Any, Final

from gateway.dialects.id_scrubbing import Defuser, defuse

Json = dict[str, Any]

#: Fields of an answer that its model needs in the next round: its thoughts, and their signatures.
ECHOED: Final = frozenset(("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "extra_content"))
#: The fields that only the model's provider reads, such as signatures.
PROVIDER_FIELDS: Final = ECHOED - {"reasoning_content", "reasoning"}
#: Fields of every call. Anything else, such as the signature of a thought, goes back to its model as it came.
OF_CALLS: Final = frozenset(("index", "id", "type", "function"))
#: Texts for programs alone: a changed one would be worthless.
OPAQUE: Final = frozenset(
    ("data", "signature", "encrypted_content", "thought_signature", "b64_json", "id", "type", "format")
)
#: Texts that each piece repeats, where others are continued.
_REPEATED: Final = frozenset(("id", "type", "format", "role", "url"))
#: Nothing that models send goes deeper.
_LEVELS: Final = 16


class TooDeepError(ValueError):
    """A value is nested so deeply that it could not be written again."""


class MessageFields:
    """The fields of one turn as they stream, each under its name. Entries of later rounds get indexes of their own."""

    __slots__ = ("_first", "_next", "_open")

    def __init__(self) -> None:
        self._open: dict[tuple[object, ...], Defuser] = {}
        self._first: dict[str, int] = {}  # by field: the index of this round's entry 0
        self._next: dict[str, int] = {}

    def feed(self, name: str, value: object) -> object:
        """Return what may be shown of a piece by now; None: nothing. Raises TooDeepError."""
        if isinstance(value, str):
            return self._filter_text((name,), value) or None
        if isinstance(value, dict):
            return self._clean_fields((name,), value) or None
        if isinstance(value, list):
            return [self._filter_entry(name, entry) for entry in value] or None
        return value

    def end_round(self) -> Json:
        """Return the texts held back when the answer of one model call has ended."""
        rest = FieldAccumulator()
        for path, defuser in self._open.items():
            if text := defuser.finish():
                rest.add(*_build_text_field(path, text))
        self._open.clear()
        self._first = dict(self._next)
        return rest.get_whole()

    def _filter_entry(self, name: str, entry: object) -> object:
        """Return what may be shown of a list entry; later pieces continue one with an index."""
        if not isinstance(entry, dict) or (index := _find_index(entry)) is None:
            return remove_approval_ids(entry)
        index += self._first.get(name, 0)
        self._next[name] = max(self._next.get(name, 0), index + 1)
        return self._clean_fields((name, index, entry.get("type")), {**entry, "index": index})

    def _clean_fields(self, path: tuple[object, ...], fields: Mapping[str, object]) -> Json:
        """Return the fields of an object without approval ids; texts continue in later pieces."""
        return {
            key: self._filter_text((*path, key), value)
            if isinstance(value, str) and key not in OPAQUE
            else remove_approval_ids(value, key=key)
            for key, value in fields.items()
        }

    def _filter_text(self, path: tuple[object, ...], text: str) -> str:
        defuser = self._open.get(path)
        if defuser is None:
            defuser = self._open[path] = Defuser()
        return defuser.feed(text)


class FieldAccumulator:
    """Fields that came in pieces: texts are continued, entries of lists by their index, anything else is replaced."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields: dict[str, object] = {}

    def add(self, name: str, value: object) -> None:
        """Add the next piece of a field. Raises TooDeepError."""
        known = self._fields.get(name)
        if isinstance(known, _Texts) and isinstance(value, str):  # as nearly all are
            known.append(value)
        else:
            self._fields[name] = _join_pieces(known, value, key=name)

    def get_whole(self) -> Json:
        """Return the fields so far."""
        return {name: _join_value(value) for name, value in self._fields.items()}


class _Texts(list[str]):
    """The pieces of a text."""


class _Entries:
    """A list, and where in it the entries with an index are."""

    __slots__ = ("entries", "places")

    def __init__(self) -> None:
        self.entries: list[object] = []
        self.places: dict[tuple[object, object], int] = {}

    def add(self, entry: object, *, level: int) -> None:
        """Add a list entry, or join it to the earlier one with the same index and type."""
        place = None
        if isinstance(entry, dict) and (index := _find_index(entry)) is not None:
            place = index, entry.get("type")
        at = None if place is None else self.places.get(place)
        if at is not None:
            self.entries[at] = _join_pieces(self.entries[at], entry, level=level)
            return
        if place is not None:
            self.places[place] = len(self.entries)
        self.entries.append(_join_pieces(None, entry, level=level))


def _find_index(entry: Mapping[str, object]) -> int | None:
    index = entry.get("index")
    return index if isinstance(index, int) and isinstance(entry.get("type"), str | None) else None


def _join_pieces(known: object, piece: object, *, key: str = "", level: int = 0) -> object:
    """Return the value of all pieces so far: texts, objects and lists grow. Raises TooDeepError."""
    if level > _LEVELS:
        raise TooDeepError
    match piece:
        case None:
            return known
        case str() if key not in _REPEATED:
            texts = known if isinstance(known, _Texts) else _Texts()
            texts.append(piece)
            return texts
        case dict():
            fields = known if isinstance(known, dict) else {}
            for name, value in piece.items():
                fields[name] = _join_pieces(fields.get(name), value, key=name, level=level + 1)
            return fields
        case list():
            entries = known if isinstance(known, _Entries) else _Entries()
            for entry in piece:
                entries.add(entry, level=level + 1)
            return entries
    return piece


def _join_value(value: object) -> object:
    """Return a joined value as plain JSON."""
    match value:
        case _Texts():
            return "".join(value)
        case _Entries():
            return [_join_value(entry) for entry in value.entries]
        case dict():
            return {name: _join_value(inner) for name, inner in value.items()}
    return value


def remove_approval_ids(value: object, *, key: str = "", level: int = 0) -> object:
    """Return a value without ids of approvals. Raises TooDeepError."""
    if level > _LEVELS:
        raise TooDeepError
    if isinstance(value, str):
        return value if key in OPAQUE else defuse(value)
    if isinstance(value, dict):
        return {name: remove_approval_ids(inner, key=name, level=level + 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [remove_approval_ids(entry, key=key, level=level + 1) for entry in value]
    return value


def _build_text_field(path: tuple[object, ...], text: str) -> tuple[str, object]:
    """Return the field that a text is in, and what of it holds nothing but the text."""
    name, *rest = path
    if not rest:
        return str(name), text
    if len(rest) == 1:
        return str(name), {str(rest[0]): text}
    index, kind, key = rest
    about = {"index": index} if kind is None else {"index": index, "type": kind}
    return str(name), [{**about, str(key): text}]
