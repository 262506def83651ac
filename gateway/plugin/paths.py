"""The facts that a text's or path's spelling shows before anything is opened: invisible characters, places, devices."""

import re
import unicodedata

from gateway.plugin.secret_names import (
    is_secret_file,
    is_secret_folder,
    is_secret_there,
    may_match_secret,
    may_match_secret_folder,
)

# Letters, symbols and marks that show nothing; control, format, private and unassigned ones go by their category.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
#: The wide blank of Chinese and Japanese texts: it shows, as two columns.
_WIDE_BLANK = "\u3000"

_PLACES = (
    "/run/secrets",
    "/var/run/secrets",
    "/root",
    "/etc/ssl/private",
    "/etc/sudoers.d",
    "/boot",
    "/sys/kernel",
    "/etc/kubernetes",
)
#: Of /proc only what describes the machine; the rest are processes, their memory and environments.
_PUBLIC_PROC = re.compile(
    "/proc/(?:cpuinfo|meminfo|version|uptime|loadavg|stat|mounts|filesystems|partitions|diskstats|vmstat|swaps|devices"
    "|net/(?:dev|route|tcp|udp|arp))?"
)
#: Folders below the root in which a glob may match private files.
_SYSTEM = frozenset({"etc", "proc", "dev", "root", "home", "run", "users", "sys", "boot"})
#: As many steps up may end at the root.
_FAR_UP = 3
#: Each name of a brace is looked at with the whole path: no typed command has more characters.
_MOST_SPELLED = 1 << 14
_TOO_LONG = "its brace has too many names"
_GLOB = re.compile(r"[*?\[]")
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)


def find_unseen(text: str) -> str | None:
    """Return the first character that a person would not see, as `U+202E`; None: what is shown is what is there.

    Tabs, line ends, emoji presentation and the wide blank are visible enough.
    """
    if text.isascii():
        control = _CONTROL.search(text)
        return f"U+{ord(control.group()):04X}" if control else None
    if text.isprintable() and not _BLANK.search(text):
        return None
    for character in text:
        if character.isascii():
            if character.isprintable() or character in "\t\n":
                continue
        elif character == _WIDE_BLANK or not (unicodedata.category(character)[0] in "CZ" or _BLANK.match(character)):
            continue
        return f"U+{ord(character):04X}"
    return None


def find_concern(path: str) -> str | None:
    """Return why reading this path needs a person under the hardened profile; None: its spelling is harmless.

    Both separators count, case does not, and dot segments are resolved as written.
    """
    unified = path.replace("\\", "/").lower()
    if unified.startswith("//"):
        return "it names another machine's share"
    if _URL.match(unified) and not re.match("[a-z]:/", unified):
        return "it is a URL, not a path"
    if re.match("~[^/]", unified):
        return "it is a user's home folder"
    parts = remove_dot_segments(unified)
    if any(is_secret_folder(part) for part in parts) or (parts and is_secret_file(parts[-1])):
        return "it may hold secrets"
    if parts and is_secret_there(parts):
        return "it may hold secrets"
    return find_place_concern(unified)


def find_place_concern(path: str) -> str | None:
    """Return the same for what a path leads to, not for its name: private places, processes, devices."""
    unified = path.lower()
    # Dots that lead out of an unknown folder may end at the root.
    absolute = (
        "/" + "/".join(remove_dot_segments(unified)) if unified.startswith(("/", "..")) or "/../" in unified else ""
    )
    if any(absolute == place or absolute.startswith(place + "/") for place in _PLACES):
        return "it is a system's private place"
    if absolute.startswith("/proc/") and not _PUBLIC_PROC.fullmatch(absolute):
        return "it shows processes and their environments"
    if absolute.startswith("/dev/") and absolute != "/dev/null":
        return "it is a device"
    return None


def find_folder_concern(path: str) -> str | None:
    """Return the same for the names of files: a path, also with globs, that leads into a folder of secrets."""
    if count_spelled_characters(path) > _MOST_SPELLED:
        return _TOO_LONG
    for spelled in _expand_braces(path):
        parts = remove_dot_segments(spelled.lower())
        if any(is_secret_folder(part) for part in parts):
            return "it may hold secrets"
        if any(_GLOB.search(part) and may_match_secret_folder(part) for part in parts[:-1]):
            return "its glob may match secrets"
    return None


def find_glob_concern(path: str) -> str | None:
    """Return the same for a path with globs in it: each name may be any that it matches."""
    if count_spelled_characters(path) > _MOST_SPELLED:
        return _TOO_LONG
    for spelled in _expand_braces(path):
        parts = remove_dot_segments(spelled.lower())
        outside = spelled.startswith("/") or spelled.count("..") >= _FAR_UP
        if spelled.startswith("~") or (outside and parts and (_GLOB.search(parts[0]) or parts[0] in _SYSTEM)):
            return "its glob may match secrets"
        folders, names = parts[:-1], parts[-1:]
        if any(_GLOB.search(part) and may_match_secret_folder(part) for part in folders):
            return "its glob may match secrets"
        if any(_GLOB.search(part) and may_match_secret(part) for part in names):
            return "its glob may match secrets"
        why = find_concern(spelled)
        if why is not None:
            return why
    return None


def count_spelled_characters(path: str) -> int:
    """Return the length of a path, with all the names of its brace: what a look at it costs."""
    return len(path) * (1 + path.count(",")) if "{" in path else len(path)


def remove_dot_segments(path: str) -> list[str]:
    """Return the names of a path without dot segments; what leads out of its beginning is dropped."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts


def _expand_braces(path: str) -> list[str]:
    """Return a brace as a shell with braces would expand it; one word has one at most."""
    before, brace, rest = path.partition("{")
    inner, end, behind = rest.partition("}")
    return [f"{before}{each}{behind}" for each in inner.split(",")] if brace and end else [path]
