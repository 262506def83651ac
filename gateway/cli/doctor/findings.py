"""The findings of an examination: what is well, what an operator should look at, and what makes requests fail."""

from dataclasses import dataclass
from typing import Final, Literal

from gateway.approvals.escaping import escape_line

#: `ok`: nothing to do. `warn`: it works, and an operator should know. `fail`: requests that need it will fail.
Level = Literal["ok", "warn", "fail"]

_LEVEL_CHARS: Final = 6
_ABOUT_CHARS: Final = 24


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about one thing. `advice` is the next step, if there is one."""

    level: Level
    about: str
    text: str
    advice: str | None = None

    def format_lines(self) -> tuple[str, ...]:
        """Return the lines for a terminal. What a server wrote is escaped."""
        first = f"{self.level:{_LEVEL_CHARS}}{escape_line(self.about):{_ABOUT_CHARS}}{escape_line(self.text)}"
        if self.advice is None:
            return (first,)
        return first, f"{'':{_LEVEL_CHARS + _ABOUT_CHARS}}-> {escape_line(self.advice)}"
