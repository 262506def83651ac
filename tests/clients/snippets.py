"""The snippets of the README and of pages in docs/: found by their marks, and run as a reader would run them.

A mark is a comment above a fence: `<!-- test: NAME -->` is run, `<!-- test: NAME, saved as FILE -->` is a file that the
snippet of that name finds in its home. A `text` fence right below a snippet is what it prints.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.demo.script import GREETING
from gateway.testing.processes import list_processes
from tests.clients.worker import INSTRUCTOR, LITELLM, NODE, ROOT

#: What a snippet prints that says nothing else.
HELLO: Final = f'{GREETING} You said: "Say hello"'
ADDRESS: Final = "127.0.0.1:8080"
TIMEOUT_S: Final = 120.0

#: The Pythons of those that have an environment of their own.
_APART: Final = {"instructor": INSTRUCTOR[0][0], "litellm": LITELLM[0][0]}
_PROGRAMS: Final = tuple(Path(__file__).with_name(name) for name in ("programs", "claude_code"))
_NOWHERE: Final = "http://127.0.0.1:9"
_FENCE: Final = re.compile(
    r"^<!-- test: (?P<name>[^,\n]+?)(?:, saved as (?P<file>\S+))? -->\n"
    r"```(?P<language>\w+)\n(?P<code>.*?)^```\n"
    r"(?:\n(?P<fence>`{3,})text\n(?P<output>.*?)^(?P=fence)\n)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Snippet:
    """One marked fence; `file` where it is to be saved and not run."""

    name: str
    file: str | None
    language: str
    code: str
    output: str


def snippets_of(page: str) -> Iterator[Snippet]:
    """Yields the snippets of one page, in its order."""
    for match in _FENCE.finditer((ROOT / page).read_text(encoding="utf-8")):
        output = (match["output"] or HELLO).strip()
        yield Snippet(match["name"], match["file"], match["language"], match["code"], output)


def programs() -> tuple[Path, ...]:
    """Returns the folders of the clients that are programs."""
    return (*(folder / "node_modules" / ".bin" for folder in _PROGRAMS), ROOT / ".venv-clients-aider" / "bin")


def run(snippet: Snippet, *, home: Path, address: str, env: Mapping[str, str] | None = None) -> str:
    """What it prints; `home` is its working folder, and nothing of it is left running."""
    code = snippet.code.replace(ADDRESS, address)
    with ended(home):
        done = subprocess.run(
            _command(snippet, code, home=home),
            cwd=home,
            env={**environment(home), **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    assert done.returncode == 0, f"{snippet.name} exited with {done.returncode}: {done.stdout}\n{done.stderr}"
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).strip()


def save(snippet: Snippet, *, home: Path, address: str) -> None:
    assert snippet.file is not None
    path = home / snippet.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(snippet.code.replace(ADDRESS, address), encoding="utf-8")


def _command(snippet: Snippet, code: str, *, home: Path) -> list[str]:
    match snippet.language:
        case "python":
            (home / "snippet.py").write_text(code)
            return [_APART.get(snippet.name, sys.executable), "snippet.py"]
        case "js":
            (home / "snippet.mjs").write_text(code)
            (home / "node_modules").symlink_to(NODE[1] / "node_modules")
            return ["node", "snippet.mjs"]
        case _:
            return ["bash", "-euo", "pipefail", "-c", code]


def environment(home: Path) -> dict[str, str]:
    """Return that of a program: a home of its own, all programs of the clients in PATH, no way to another machine."""
    commands = home / ".commands"
    commands.mkdir(exist_ok=True)
    (commands / "gateway").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m gateway "$@"\n')
    (commands / "gateway").chmod(0o755)
    folders = (commands, Path(sys.executable).parent, *programs())
    return {
        "PATH": os.pathsep.join([*map(str, folders), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "LLM_USER_PATH": str(home),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), _NOWHERE),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
    }


@contextlib.contextmanager
def ended(home: Path) -> Iterator[None]:
    """Ends the daemons that a program leaves behind (Cline does): known by the home they were given."""
    try:
        yield
    finally:
        mark = f"HOME={home}".encode()
        for pid in list_processes():
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    os.kill(pid, signal.SIGKILL)
