"""The rows of an SQL result as compact JSON for a model, bounded in number and size. Every value has a form."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_CELL = 16_384  # characters


@dataclass(slots=True)
class SqlRows:
    """The rows of a result, up to its limits."""

    max_rows: int
    max_bytes: int
    columns: Sequence[str] = ()
    rows: list[str] = field(default_factory=list)
    size_bytes: int = 0
    truncated: bool = False
    changed: int | None = None

    def add(self, row: Sequence[object]) -> bool:
        """Add a row if there is room. Return whether there was."""
        text = json.dumps(
            [_convert_cell(value) for value in row], ensure_ascii=False, separators=(",", ":"), default=str
        )
        self.size_bytes += len(text.encode("utf-8", "replace")) + len(",")
        self.truncated = len(self.rows) == self.max_rows or self.size_bytes > self.max_bytes
        if not self.truncated:
            self.rows.append(text)
        return not self.truncated

    def __str__(self) -> str:
        columns = json.dumps([_convert_cell(name) for name in self.columns], ensure_ascii=False, separators=(",", ":"))
        changed = "" if self.changed is None else f',"changed":{self.changed}'
        return (
            f'{{"columns":{columns},"rows":[{",".join(self.rows)}],"truncated":{json.dumps(self.truncated)}{changed}}}'
        )


def _convert_cell(value: object) -> object:
    match value:
        case bytes() | bytearray() | memoryview():
            return f"[{len(value)} bytes]"
        case str() if len(value) > MAX_CELL:
            return f"{value[:MAX_CELL]}[... {len(value) - MAX_CELL} more characters]"
        case float() if not math.isfinite(value):
            return str(value)
        case None | str() | int() | float():
            return value
        case list() | tuple():
            return [_convert_cell(inner) for inner in value]
    return str(value)
