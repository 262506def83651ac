"""The YAML text as a plain tree, with the place in the file of each part.

Rule 1: the text is only data: no tags, no merge keys, one document, no value that YAML 1.1 and 1.2 read differently.
Rule 2: anything that can explode is counted while it is read: bytes, depth, aliases, values with aliases expanded.
Rule 3: every fault is recorded with its place. Reading continues wherever the rest still makes sense.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from gateway.config.file_access import find_access_fault
from gateway.config.problems import KeyPath
from gateway.config.reading.interpolation import InterpolationError, expand
from gateway.config.reading.yaml_scalars import resolve_plain
from gateway.config.values.secret import MaskedText

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_ALIASES = 100
# Values of the whole tree, an aliased one counted each time it is used.
MAX_VALUES = 100_000

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# To YAML the braces of `{key: ${VAR}}` are its own. While it reads, a reference is a row of as many private characters,
# which mean nothing to it; references with a quote or a backslash stay as they are, because quoted text may need them.
_REFERENCE = re.compile(r"\$\{[^{}\n\r\"'\\]*\}")
_PRIVATE_BASE = 0xF0000
_PRIVATE = re.compile("[\U000f0000-\U000f007f]")
# libyaml is 20 times as fast; both give the same events and marks.
_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a file, 1-based."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault in the text, with as much of its `path` as can be determined."""

    mark: Mark
    path: KeyPath
    message: str


class BrokenValue:
    """The placeholder in the tree for a value whose fault is already recorded."""

    __slots__ = ()


BROKEN = BrokenValue()


@dataclass(slots=True)
class YamlSource:
    """The tree (dicts, lists, text, numbers, true/false, None, BROKEN), places of keys and values, and faults.

    Below an alias only the alias itself has a place. `complete` is False when reading had to stop.
    """

    tree: object = None
    keys: dict[KeyPath, Mark] = field(default_factory=dict)
    values: dict[KeyPath, Mark] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    complete: bool = False


class _UnfitFileError(ValueError):
    """A file that is not read, though it could be."""


def read_text(path: Path, *, limit_bytes: int) -> str:
    """Return the text of a small file in UTF-8. Raises ValueError with the cause, never with the content.

    A pipe or a device is refused and not waited for, and so is a world-writable file.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISREG(mode):
                kind = "a pipe" if stat.S_ISFIFO(mode) else "a device"
                raise _UnfitFileError(f"cannot read {str(path)!r}: it is {kind}, not a regular file")
            if (refused := find_access_fault(path, mode)) is not None:
                raise _UnfitFileError(refused)
            content = file.read(limit_bytes + 1)
    except _UnfitFileError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a path"
        raise ValueError(f"cannot read {str(path)!r}: {reason}") from None
    if len(content) > limit_bytes:
        raise ValueError(f"{str(path)!r} is larger than {limit_bytes} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{str(path)!r} is not UTF-8 at byte {error.start}: save it as UTF-8") from None


def parse(text: str, *, environ: Mapping[str, str] | None) -> YamlSource:
    """Parse a configuration. Never raises because of the text. `environ` None: `$` has no meaning."""
    source = YamlSource()
    unprintable = _UNPRINTABLE.search(text) or _PRIVATE.search(text)
    if unprintable:
        mark = _build_mark(text, unprintable.start())
        source.faults.append(Fault(mark, (), f"the character U+{ord(unprintable[0]):04X} is not allowed in YAML"))
        return source
    reader = _Reader(source, yaml.parse(_mask_references(text), Loader=_LOADER), environ=environ)
    try:
        source.tree = reader.read_document()
        source.complete = True
    except _UnusableError as error:
        source.faults.append(error.fault)
    except yaml.MarkedYAMLError as error:
        source.faults.append(_build_syntax_fault(text, error))
    return source


def _mask_references(text: str) -> str:
    """Replace each reference in `text` by private characters, one for one, so that every place stays the same."""
    return _REFERENCE.sub(lambda match: "".join(_mask_char(char) for char in match[0]), text)


def _mask_char(char: str) -> str:
    """Return the private character that stands for an ASCII character of a reference."""
    return chr(_PRIVATE_BASE + ord(char)) if char.isascii() else char


def _restore_text(text: str) -> str:
    """Return a text with its private characters replaced by the ones they stand for."""
    return _PRIVATE.sub(lambda match: chr(ord(match[0]) - _PRIVATE_BASE), text)


class _UnusableError(Exception):
    """The signal that reading cannot continue."""

    def __init__(self, mark: Mark, path: KeyPath, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(mark, path, message)


@dataclass(frozen=True, slots=True)
class _AnchorValue:
    """The value that an alias stands for, and the cost of using it."""

    value: object
    values: int
    height: int


class _Reader:
    """The converter of one document's events into a tree. Its recursion is bounded by MAX_DEPTH."""

    def __init__(self, source: YamlSource, events: Iterator[yaml.Event], *, environ: Mapping[str, str] | None) -> None:
        self._source = source
        self._events = events
        self._environ = environ
        self._anchors: dict[str, _AnchorValue | None] = {}
        self._aliases = 0
        self._values = 0
        self._deepest = 0

    def read_document(self) -> object:
        """Return the tree of the one document. Raises _UnusableError for a second one."""
        tree: object = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _UnusableError(_get_mark(event), (), "a second document begins here: one is read")
                tree = self._read_node(next(self._events), ())
        return tree

    def _read_node(self, event: yaml.Event, path: KeyPath) -> object:
        """Return the value of the node that begins with an event, and note its place and its size."""
        self._source.values.setdefault(path, _get_mark(event))
        if isinstance(event, yaml.AliasEvent):
            return self._read_alias(event, path)
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        self._count_values(event, path, values=1, depth=len(path))
        if event.anchor is None:
            return self._read_content(event, path)
        self._anchors[event.anchor] = None
        values_before, deepest_before = self._values - 1, self._deepest
        self._deepest = len(path)
        value = self._read_content(event, path)
        self._anchors[event.anchor] = _AnchorValue(value, self._values - values_before, self._deepest - len(path))
        self._deepest = max(self._deepest, deepest_before)
        return value

    def _read_content(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, path: KeyPath) -> object:
        """Return the value of a scalar, mapping or sequence, and report a tag on it."""
        if event.tag is not None and event.tag != "!":
            self._add_fault(event, path, "tags such as !!str or !name are not used here: remove it")
        if isinstance(event, yaml.ScalarEvent):
            return self._read_scalar(event, path)
        return self._read_mapping(path) if isinstance(event, yaml.MappingStartEvent) else self._read_sequence(path)

    def _read_sequence(self, path: KeyPath) -> list[object]:
        """Return the items of a sequence, up to its end event."""
        items: list[object] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._read_node(event, (*path, len(items))))
        return items

    def _read_mapping(self, path: KeyPath) -> dict[str, object]:
        """Return the entries of a mapping, up to its end event. Report repeated and merge keys."""
        entries: dict[str, object] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _UnusableError(_get_mark(event), path, "a key must be plain text")
            key = _restore_text(event.value)
            key_path = (*path, key)
            self._count_values(event, key_path, values=1, depth=len(path))
            if key == "<<" and not event.style:
                self._add_fault(event, key_path, "merge keys (<<) are not used here: write the keys out")
            if key not in entries:
                self._source.keys[key_path] = _get_mark(event)
                entries[key] = self._read_node(next(self._events), key_path)
                continue
            first = self._source.keys[key_path]
            self._add_fault(event, key_path, f"this key is already at {first.line}:{first.column}: keep one of the two")
            self._read_node(next(self._events), key_path)
        entries.pop("<<", None)
        return entries

    def _read_scalar(self, event: yaml.ScalarEvent, path: KeyPath) -> object:
        """Return the value of a scalar, with its references replaced; BROKEN after a reported fault."""
        is_plain = not event.style
        text = _restore_text(event.value)
        try:
            if self._environ is not None and "$" in text:
                expanded = expand(text, environ=self._environ)
                if is_plain and expanded in {"null", "~"}:
                    return None
                return MaskedText(expanded) if "${" in text else expanded
            return resolve_plain(text) if is_plain else text
        except InterpolationError as error:
            for message in error.messages:
                self._add_fault(event, path, message)
        except ValueError as error:
            self._add_fault(event, path, str(error))
        return BROKEN

    def _read_alias(self, event: yaml.AliasEvent, path: KeyPath) -> object:
        """Return the value that an alias stands for; BROKEN after a reported fault."""
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            raise _UnusableError(_get_mark(event), path, f"more than {MAX_ALIASES} aliases")
        if event.anchor not in self._anchors:
            self._add_fault(event, path, f"the alias *{event.anchor} has no anchor &{event.anchor} above it")
            return BROKEN
        known = self._anchors[event.anchor]
        if known is None:
            self._add_fault(event, path, f"the alias *{event.anchor} stands inside of what it names")
            return BROKEN
        self._count_values(event, path, values=known.values, depth=len(path) + known.height)
        return known.value

    def _count_values(self, event: yaml.Event, path: KeyPath, *, values: int, depth: int) -> None:
        """Count values and depth. Raises _UnusableError beyond MAX_VALUES or MAX_DEPTH."""
        self._values += values
        self._deepest = max(self._deepest, depth)
        if self._deepest > MAX_DEPTH:
            raise _UnusableError(_get_mark(event), path, f"nested deeper than {MAX_DEPTH} levels")
        if self._values > MAX_VALUES:
            raise _UnusableError(_get_mark(event), path, f"more than {MAX_VALUES} values, aliases expanded")

    def _add_fault(self, event: yaml.Event, path: KeyPath, message: str) -> None:
        self._source.faults.append(Fault(_get_mark(event), path, message))


def _get_mark(event: yaml.Event) -> Mark:
    place = event.start_mark
    return Mark(place.line + 1, place.column + 1) if place else Mark(1, 1)


def _build_mark(text: str, index: int) -> Mark:
    return Mark(text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))


def _build_syntax_fault(text: str, error: yaml.MarkedYAMLError) -> Fault:
    """Return the fault of a syntax error, with its place and a hint about tabs or quotes."""
    place = error.problem_mark or error.context_mark
    mark = Mark(place.line + 1, place.column + 1) if place else Mark(1, 1)
    lines = text.splitlines()
    line = lines[mark.line - 1] if mark.line <= len(lines) else ""
    message = f"not valid YAML: {error.problem}" + (f" ({error.context})" if error.context else "")
    if line[: mark.column].endswith("\t") or line[: len(line) - len(line.lstrip())].count("\t"):
        message += "; indent with spaces, not tabs"
    else:
        message += "; text with ': ', ' #' or one of [ ] { } & * ! | > % @ ` at its beginning needs quotes"
    return Fault(mark, (), message)
