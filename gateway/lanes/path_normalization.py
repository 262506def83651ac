"""Readings of a path and a method, which an upstream gets as they came: servers read both in different ways."""

import re
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Final
from urllib.parse import unquote_to_bytes

#: What some servers take for a slash, and others for a part of a name.
_SLASHES: Final = (b"%2f", b"\\", b"%5c")
#: A dot segment in the most careful reading of a path that is decoded.
_CLIMBING: Final = re.compile(rb"(?:^|[/\\])\.\.(?:[/\\]|$)")
#: The longest path, in bytes, that is read in all ways.
_LONGEST: Final = 2000
#: Paths that servers read differently: encoded, with parameters, backslashes, dot segments or empty ones.
_ODD: Final = re.compile(rb"[%;\\]|//|/\.")

#: Methods that ask for nothing to be made.
_MAKES_NOTHING: Final = frozenset((b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"TRACE"))


def may_act_as_post(method: bytes, *, has_body: bool) -> bool:
    """Return whether a server may answer a request as it answers a POST.

    Some take a method in any letter case, and some do not look at it where there is a body.
    """
    return has_body or method.upper() not in _MAKES_NOTHING


def may_leave_root(path: bytes) -> bool:
    """Return whether the dot segments of `path` could lead above its beginning.

    As servers tidy paths up: by RFC 3986, with percent-encoded dots, empty segments that are merged, and each set of
    other slashes that one may know. A parameter makes another name of a segment (`..;x`), as RFC 3986 has it.
    """
    if b".." not in path and b"%2" not in path:
        return False
    if _CLIMBING.search(unquote_to_bytes(path)) is None:
        return False
    return len(path) > _LONGEST or any(map(_climbs_above_start, _list_readings(path)))


def may_end_with(path: bytes, ends: Iterable[bytes]) -> bool:
    """Return whether a server may read `path` as one with one of these ends, which are in lower case.

    A path that servers read differently may end with what is anywhere in it.
    """
    text = unquote_to_bytes(path).lower()
    if _ODD.search(path) is None:
        return text.rstrip(b"/").endswith(tuple(ends))
    text = text.replace(b"\\", b"/")
    return any(end in text for end in ends)


def _list_readings(path: bytes) -> Iterator[list[bytes]]:
    """Yield the segments of a path, once for each set of characters that a server may take as slash."""
    path = path.lower()
    present = [slash for slash in _SLASHES if slash in path]
    for count in range(len(present) + 1):
        for known in combinations(present, count):
            read = path
            for slash in known:
                read = read.replace(slash, b"/")
            yield [unquote_to_bytes(segment) for segment in read.split(b"/")]


def _climbs_above_start(segments: Iterable[bytes]) -> bool:
    """Return whether the `..` segments lead above the first one."""
    depth = 0
    for name in segments:
        if name == b"..":
            depth -= 1
            if depth < 0:
                return True
        elif name not in (b"", b"."):
            depth += 1
    return False
