"""A table of a documentation page that a program writes, and a test compares."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PageTable:
    """The table behind the comment that names its program: `python -m MODULE` writes it."""

    page: Path
    module: str

    def read(self) -> str:
        """Return the table as the page has it."""
        comment = f"<!-- made by python -m {self.module} -->\n"
        return self.page.read_text(encoding="utf-8").partition(comment)[2].partition("\n\n")[0] + "\n"

    def write(self, text: str) -> None:
        """Write the table into the page, in place of the one there."""
        page = self.page.read_text(encoding="utf-8")
        self.page.write_text(page.replace(self.read(), text), encoding="utf-8")


def render(*rows: Sequence[str]) -> str:
    """Return a table; its first row has the titles."""
    titles, *others = rows
    return "".join(f"| {' | '.join(row)} |\n" for row in (titles, ["---"] * len(titles), *others))
