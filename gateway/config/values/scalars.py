"""The single values of the configuration: text, flags, counts, names and paths, each with its own message."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal
from unicodedata import normalize

from gateway.config.file_access import find_access_fault
from gateway.config.reading.interpolation import is_utf_8
from gateway.config.values.secret import MaskedText, mask
from gateway.config.values.value import PathLeaf, ValueType, describe_kind, limit_range
from gateway.text.names import find_reserved_name, find_unfit_reason

_FLAG_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_COUNT = re.compile(r"[-+]?[0-9]{1,18}\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
#: Characters of a name for people, at most.
LONGEST_LABEL = 128


def parse_text(value: object) -> str:
    """Parse a text. Raises ValueError for numbers, flags and invalid UTF-8."""
    if isinstance(value, bool | int | float):
        raise ValueError(f"expected text, found {describe_kind(value)}: put it in quotes")
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {describe_kind(value)}")
    if not is_utf_8(value):
        raise ValueError("expected text in UTF-8")
    return str(value)


def parse_free_text(value: object) -> str:
    """Parse a text as `parse_text` does, and leave the value of a variable hidden."""
    text = parse_text(value)
    return value if isinstance(value, MaskedText) else text


def parse_flag(value: object) -> bool:
    """Parse `true` or `false`. A quoted or interpolated value may also be yes, no, on, off, 1 or 0."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _FLAG_WORDS:
        return _FLAG_WORDS[value.strip().lower()]
    raise ValueError(f"expected true or false, found {describe_kind(value)}")


def parse_count(value: object) -> int:
    """Parse a whole number, also from text of digits."""
    if isinstance(value, str) and _COUNT.match(value.strip()):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected a whole number, found {describe_kind(value)}")
    return value


def build_count_type(low: int, high: int) -> ValueType:
    """Return the type of a whole number from `low` to `high`."""
    parse = limit_range(low, high, parse_count)
    return ValueType(kind=f"whole number, {low} to {high}", parse=parse, json_type="integer", limits=(low, high))


def build_text_parser(pattern: re.Pattern[str], message: str) -> Callable[[object], str]:
    """Return the parser of texts that fit `pattern`; `message` is its error."""

    def parse(value: object) -> str:
        text = parse_text(value)
        if not pattern.match(text):
            raise ValueError(message)
        return text

    return parse


#: Parses a name that is safe in a URL, a header and a metric label.
parse_name = build_text_parser(
    _NAME, "expected 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"
)


def parse_label(value: object) -> str:
    """Parse a name for people: any text of one line."""
    text = parse_text(value)
    if not text.strip() or len(text) > LONGEST_LABEL or _CONTROL.search(text):
        raise ValueError(f"expected 1 to {LONGEST_LABEL} characters in one line")
    return text


def parse_shown_name(value: object) -> str:
    """Parse a name that people decide by: a label that shows what it is, in its plain form (NFKC)."""
    name = parse_label(value)
    if (plain := normalize("NFKC", name).strip()) != name:
        raise ValueError(f"names that look the same would be two: write the plain form {plain!r} of this one")
    if (problem := find_unfit_reason(name)) is not None:
        raise ValueError(f"the name {problem}: choose another one")
    return name


def parse_caller_name(value: object) -> str:
    """Parse the name of a key."""
    name = parse_shown_name(value)
    if (reserved := find_reserved_name(name)) is not None:
        what = "is" if name == reserved else f"looks like {reserved!r}, which is"
        raise ValueError(f"the name {what} the gateway's own in lists and in the audit log: choose another one")
    return name


def parse_variable_name(value: object) -> str:
    text = parse_text(value)
    if not text or "=" in text or _CONTROL.search(text):
        raise ValueError("expected the name of an environment variable")
    return text


def parse_path(value: object, folder: Path) -> Path:
    """Parse a path. A relative one begins at `folder`, that of the configuration file."""
    text = str(value) if isinstance(value, Path) else parse_text(value)
    if not text or "\0" in text:
        raise ValueError("expected a path")
    return folder / text


def parse_existing_file(value: object, folder: Path) -> Path:
    """Parse the path of a file that exists and that others cannot write."""
    path = parse_path(value, folder)
    try:
        is_file = path.is_file()
        refused = find_access_fault(path, path.stat().st_mode) if is_file else None
    except OSError as error:
        raise ValueError(f"cannot look at {str(path)!r}: {error.strerror}") from None
    if not is_file:
        raise ValueError(f"no such file: {str(path)!r}")
    if refused is not None:
        raise ValueError(refused)
    return path


Text = Annotated[str, ValueType(kind="text", parse=parse_free_text, write=mask)]
Flag = Annotated[bool, ValueType(kind="true or false", parse=parse_flag, json_type="boolean")]
Name = Annotated[str, ValueType(kind="name", parse=parse_name)]
Label = Annotated[str, ValueType(kind="name", parse=parse_label)]
#: Of a tenant.
ShownName = Annotated[str, ValueType(kind="name", parse=parse_shown_name)]
CallerName = Annotated[str, ValueType(kind="name", parse=parse_caller_name)]
VariableName = Annotated[str, ValueType(kind="name", parse=parse_variable_name)]
ApprovalMode = Literal["turn", "hold", "reject"]
FilePath = Annotated[Path, PathLeaf(kind="path", parse=parse_path)]
ExistingFile = Annotated[Path, PathLeaf(kind="file", parse=parse_existing_file)]
