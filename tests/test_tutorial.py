"""docs/tutorial.md does what it says: its commands and files, in their order, as a reader would type them.

A mark above a fence says what happens to it: a shell runs `<!-- test: tutorial -->`, `, saved as FILE` is a file,
`, in the background` is a gateway that goes on until the next one, `, typed into FILE` is a line for that program, and
a `text` fence right below is its answer.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gateway.testing.ports import free_port

ROOT = Path(__file__).parent.parent
_FENCE = re.compile(
    r"^<!-- test: tutorial(?:, (?P<how>saved as|in the background|typed into) ?(?P<file>\S+)?)? -->\n"
    r"```\w+\n(?P<text>.*?)^```\n(?:\n```text\n(?P<answer>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_APPROVE = re.compile(r"^approve ap_\w+ \w+$", re.MULTILINE)


class Reader:
    """Somebody who follows the page, in a home of their own, with `gateway` on the path."""

    def __init__(self, home: Path) -> None:
        self.folder = home
        self._address = f"127.0.0.1:{free_port()}"
        commands = home / "bin"
        commands.mkdir()
        (commands / "gateway").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m gateway "$@"\n')
        (commands / "gateway").chmod(0o755)
        self._environment = {
            "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(home),
        }

    def here(self, text: str) -> str:
        """The page's text with the address of this gateway."""
        return text.replace("127.0.0.1:8080", self._address)

    def run(self, command: str) -> None:
        """Runs the commands; the next ones begin in the folder that these went to."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{self.here(command)}\necho; pwd"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        self.folder = Path(done.stdout.splitlines()[-1])

    def save(self, name: str, text: str) -> None:
        (self.folder / name).write_text(self.here(text))

    @contextmanager
    def running(self, command: str) -> Iterator["subprocess.Popen[str]"]:
        """A program that goes on, until Ctrl-C."""
        process = subprocess.Popen(
            shlex.split(command),
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=60)


def until(process: "subprocess.Popen[str]", pattern: re.Pattern[str]) -> str:
    """Return the program's output up to the line that fits."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if pattern.search(line):
            return said
    raise AssertionError(f"it ended without a line like {pattern.pattern!r}: {said}")


def type_into(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def test_tutorial_commands_work_in_order(tmp_path: Path) -> None:
    """Every marked fence of the page, in its order; the line that the answer shows approves the call that asks."""
    reader = Reader(tmp_path)
    fences = list(_FENCE.finditer((ROOT / "docs/tutorial.md").read_text()))
    with ExitStack() as gateway:
        for fence in fences:
            match fence["how"]:
                case "saved as":
                    reader.save(fence["file"], fence["text"])
                case "in the background":
                    gateway.close()
                    until(gateway.enter_context(reader.running(fence["text"])), re.compile("is ready"))
                case "typed into":
                    with reader.running(f"python3 {fence['file']}") as program:
                        type_into(program, fence["text"])
                        if fence["answer"]:
                            until(program, re.compile(f"^{re.escape(fence['answer'].rstrip())}$"))
                        else:
                            note = reader.folder / "work/note.txt"
                            asked = until(program, re.compile("^reject ap_"))
                            assert not note.exists()
                            type_into(program, _APPROVE.findall(asked)[0] + "\n")
                            until(program, re.compile("wrote 'note.txt'"))
                            assert note.read_text() == "Call Ann"
                case _:
                    reader.run(fence["text"])
    assert {fence["how"] for fence in fences} == {"saved as", "in the background", "typed into", None}
