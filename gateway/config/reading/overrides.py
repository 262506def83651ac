"""The values laid over the file: `GATEWAY__SECTION__KEY` variables, and above them the flags of the command line."""

import re
from collections.abc import Mapping
from typing import get_origin

from gateway.config.document import Document
from gateway.config.problems import KeyPath, SourceLocation, format_path
from gateway.config.reading.interpolation import is_utf_8
from gateway.config.reading.secret_files import find_companion
from gateway.config.reading.yaml_reader import parse
from gateway.config.reading.yaml_scalars import resolve_plain
from gateway.config.schema.section import Section, find_type, is_collection, strip
from gateway.config.schema.settings import DEFAULT_LISTEN
from gateway.config.values.addresses import HIGHEST_PORT, Address, parse_address
from gateway.config.values.scalars import parse_count
from gateway.config.values.secret import MaskedText
from gateway.config.values.value import limit_range

_PREFIX = "GATEWAY__"
_INDEX = re.compile(r"[0-9]{1,4}\Z")
_FLAGS = frozenset({"listen", "port", "workers", "upstream"})


def apply_variables(document: Document, environ: Mapping[str, str], *, root: type[Section]) -> None:
    """Lay every `GATEWAY__...` variable over the draft, shorter paths first."""
    seen: dict[str, str] = {}
    for name in sorted((name for name in environ if name.upper().startswith(_PREFIX)), key=_get_sort_key):
        if not is_utf_8(name + environ[name]):
            document.complain_about(name.encode("utf-8", "backslashreplace").decode(), "is not valid UTF-8")
            continue
        twin = seen.setdefault(name.upper(), name)
        if twin != name:
            document.complain_about(name, f"is also set as {twin}: upper and lower case are the same here")
            continue
        try:
            path = _resolve_path(document, name[len(_PREFIX) :].split("__"), root=root)
            value = _parse_value(environ[name], find_type(root, path))
        except ValueError as error:
            document.complain_about(name, str(error))
            continue
        companion = find_companion(path)
        if companion:
            # `api_key` laid over the `api_key_file` of the file replaces it, and the other way round.
            document.drop(companion)
        document.put(path, value, place=SourceLocation(name))


def apply_flags(document: Document, flags: Mapping[str, object]) -> None:
    """Lay `listen`, `port`, `workers` and `upstream` over the draft. None: not given."""
    unknown = flags.keys() - _FLAGS
    if unknown:
        raise TypeError(f"unknown flags {sorted(unknown)}: expected {sorted(_FLAGS)}")
    for name in ("listen", "workers"):
        if flags.get(name) is not None:
            document.put((name,), flags[name], place=SourceLocation(f"--{name}"))
    if flags.get("port") is not None:
        _apply_port(document, flags["port"])
    if flags.get("upstream") is not None:
        place = SourceLocation("--upstream")
        document.put(("upstreams",), [{"name": "default"}], place=place)
        document.put(("upstreams", 0, "base_url"), flags["upstream"], place=place)
        document.drop(("context", "upstream"))


def _apply_port(document: Document, value: object) -> None:
    """Replace only the port. A problem with the host is still reported at the host's own place."""
    try:
        port = limit_range(0, HIGHEST_PORT, parse_count)(value)
    except ValueError as error:
        document.complain_about("--port", str(error))
        return
    listen = document.get("listen")
    try:
        host = parse_address(DEFAULT_LISTEN if listen is None else listen).host
    except ValueError:
        return
    place = SourceLocation("--port") if listen is None else document.locate(("listen",))
    document.put(("listen",), str(Address(host, port)), place=place)


def _get_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that orders indexes by number, so that a list can be filled from its beginning."""
    return [(int(part), "") if _INDEX.match(part) else (-1, part.upper()) for part in name.split("__")]


def _resolve_path(document: Document, segments: list[str], *, root: type[Section]) -> KeyPath:
    """Return the path that a variable means: keys in any case, list entries by number."""
    path: KeyPath = ()
    for segment in segments:
        if not segment:
            raise ValueError("expected GATEWAY__KEY or GATEWAY__SECTION__KEY")
        node = document.get(*path)
        if isinstance(node, list) or (node is None and get_origin(strip(find_type(root, path))) is tuple):
            length = len(node) if isinstance(node, list) else 0
            if not _INDEX.match(segment) or int(segment) > length:
                raise ValueError(f"{format_path(path)} is a list of {length}: expected a number from 0 to {length}")
            path = (*path, int(segment))
        elif node is None or isinstance(node, dict):
            path = (*path, _find_matching_key(node or {}, segment))
        else:
            raise ValueError(f"{format_path(path)} is neither a section nor a list")
    return path


def _find_matching_key(node: Mapping[str, object], segment: str) -> str:
    """Return the key of a section that a segment names in any letter case, else the segment."""
    return next((key for key in node if key.casefold() == segment.casefold()), segment.lower())


def _parse_value(text: str, annotation: object) -> object:
    """Read a list or a section as YAML, and take a single value as it is. `null` and `~` mean None."""
    if annotation is not None and is_collection(annotation):
        source = parse(text, environ=None)
        if source.faults:
            raise ValueError(source.faults[0].message)
        return source.tree
    if text in {"null", "~"}:
        return None
    return _parse_free_value(text) if annotation in (None, object) else MaskedText(text)


def _parse_free_value(text: str) -> object:
    """Read a value of a plugin, whose type is not known here, as the file would be read."""
    if text.startswith(("[", "{", '"', "'")):
        source = parse(text, environ=None)
        return MaskedText(text) if source.faults else source.tree
    try:
        value = resolve_plain(text)
    except ValueError:
        return MaskedText(text)
    return MaskedText(text) if isinstance(value, str) else value
