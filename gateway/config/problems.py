"""The problems of a configuration, each with its place, collected into one error."""

import re
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_*-]{1,64}\Z")
_LONGEST_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to correct. `place` is `file:line:col`, a variable or a flag. `path` may be empty."""

    place: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.place} {self.path}: {self.message}" if self.path else f"{self.place}: {self.message}"


class ConfigError(Exception):
    """A configuration that cannot be used, with every problem found, in the order of the file."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """The origin of a value: a file with its line and column (1-based), a variable, or a flag."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


def format_path(path: KeyPath) -> str:
    """Write `("upstreams", 0, "base_url")` as `upstreams[0].base_url`. Unusual keys are quoted and escaped."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.match(part):
            text += f".{part}" if text else part
        else:
            text += f"[{quote_word(part)}]"
    return text


def fits(path: KeyPath, pattern: KeyPath) -> bool:
    """Return whether `path` fits `pattern`, in which `*` is any key or index."""
    return len(path) == len(pattern) and all(part in ("*", key) for part, key in zip(pattern, path, strict=True))


def quote_word(word: str) -> str:
    """Return a word of the file in quotes: on one line, escaped, and cut if it is too long to help."""
    return ascii(word if len(word) <= _LONGEST_SHOWN else f"{word[:_LONGEST_SHOWN]}...")
