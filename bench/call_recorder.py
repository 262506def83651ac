"""Runs a gateway, and writes the Python calls of its main thread between two SIGUSR2 to a file (`bench.executed`).

python call_recorder.py FILE run -c gateway.yaml
"""

import signal
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from gateway.cli.main import main


class Recorder:
    """The calls of the main thread, each with its depth below the event loop."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._calls: list[tuple[int, CodeType]] = []
        self._depth = 0
        self._is_on = False

    def switch(self, *_: object) -> None:
        """Begin to record, or write what was recorded."""
        self._is_on = not self._is_on
        sys.setprofile(self._note if self._is_on else None)
        if not self._is_on:
            self._file.write_text("".join(f"{'  ' * depth}{_describe(call)}\n" for depth, call in self._calls))

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._calls.append((max(self._depth, 0), frame.f_code))
            self._depth += 1
        elif event == "return":
            self._depth -= 1


def _describe(call: CodeType) -> str:
    """Return the qualified name of what was called, with its place."""
    return f"{call.co_qualname} {call.co_filename.rpartition('/site-packages/')[2]}:{call.co_firstlineno}"


if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, Recorder(Path(sys.argv[1])).switch)
    sys.exit(main(sys.argv[2:]))
