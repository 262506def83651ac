"""A reader who follows the README: a home, a clone and an environment of their own, and two terminals."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gateway.testing.ports import free_port
from tests.clients.snippets import ADDRESS, Snippet, programs
from tests.clients.worker import NODE, ROOT

#: What a clone gets installed by its first `make run`, which needs a package index.
_INSTALLED: Final = (".venv/.run", ".venv/bin/gateway")
_TIMEOUT_S: Final = 120.0
_PLACEHOLDER: Final = "<this repository>"


class Reader:
    """Runs the blocks of a page in the order of the page; `folder` is where the second terminal stands."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home
        self.address = f"127.0.0.1:{free_port()}"
        self._activated = ""
        self._repository = _published(home / "published")

    def here(self, text: str) -> str:
        """Returns the text of the page with this reader's address, folder and repository."""
        text = text.replace(ADDRESS, self.address).replace("/home/you", str(self.home))
        return text.replace(_PLACEHOLDER, str(self._repository))

    def clone(self, snippet: Snippet) -> str:
        """Runs all lines of the block but the last, installs, and returns the last: the command that goes on."""
        *lines, last = snippet.code.strip().splitlines()
        self.folder = Path(self._run("\n".join([*lines, "pwd"])).splitlines()[-1])
        _install(self.folder)
        self._listen()
        return last

    def activate(self, snippet: Snippet) -> None:
        """Runs the block in the second terminal, before each of its further commands."""
        self._run(snippet.code)
        self._activated = snippet.code

    def save(self, snippet: Snippet) -> None:
        """Writes the block to the file that it names."""
        assert snippet.file is not None
        path = (self.home if snippet.file.startswith(".") else self.folder) / snippet.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.here(snippet.code), encoding="utf-8")
        if snippet.name == "approvals":
            self._listen()
            (self.folder / "work").mkdir()

    def type(self, snippet: Snippet) -> str:
        """Runs the block in the second terminal and returns what it prints, in the words of the page."""
        match snippet.language:
            case "python":
                (self.folder / "snippet.py").write_text(self.here(snippet.code))
                command = "python snippet.py"
            case "js":
                (self.folder / "snippet.mjs").write_text(self.here(snippet.code))
                modules = self.folder / "node_modules"
                if not modules.exists():
                    modules.symlink_to(NODE[1] / "node_modules")
                command = "node snippet.mjs"
            case _:
                command = snippet.code
        printed = self._run(command)
        return re.sub(r"\x1b\[[0-9;]*m", "", printed).strip().replace(self.address, ADDRESS)

    @contextmanager
    def running(self, command: str) -> Iterator["subprocess.Popen[str]"]:
        """Runs `command` in the first terminal until Ctrl-C."""
        process = subprocess.Popen(
            shlex.split(command),
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=_TIMEOUT_S)

    def _listen(self) -> None:
        """Has gateway.yaml listen on a free port: the printed one may be in use on this machine."""
        file = self.folder / "gateway.yaml"
        text = re.sub(r"^listen:.*\n", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        file.write_text(f"listen: {self.address}\n{text}", encoding="utf-8")

    def _run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{self._activated}\n{self.here(command)}"],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _environment(self) -> dict[str, str]:
        """Nothing of the environment that runs the tests but where the machine's programs are."""
        ours = str(Path(sys.executable).parent)
        folders = [folder for folder in os.environ["PATH"].split(os.pathsep) if folder != ours and "venv" not in folder]
        return {"PATH": os.pathsep.join([*folders, *map(str, programs())]), "HOME": str(self.home), "LANG": "C.UTF-8"}


def banner_of(process: "subprocess.Popen[str]", *, lines: int) -> str:
    """Returns what a gateway prints at its start: that many lines."""
    assert process.stdout is not None
    return "".join(process.stdout.readline() for _ in range(lines)).rstrip()


def _published(folder: Path) -> Path:
    """Returns a repository of the files of this checkout as they are now, committed or not."""
    named = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    files = subprocess.run(named, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, files)):
        if (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    git = ["git", "-C", str(folder), "-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    for arguments in (["init", "--quiet"], ["add", "--all", "--force"], ["commit", "--quiet", "--message", "files"]):
        subprocess.run([*git, *arguments], check=True, capture_output=True)
    return folder


def _install(folder: Path) -> None:
    """Makes the environment that the first `make run` makes, from the packages that run these tests."""
    venv.create(folder / ".venv", symlinks=True, with_pip=False)
    [packages] = (folder / ".venv" / "lib").glob("python*/site-packages")
    ours: Sequence[str] = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "installed.pth").write_text("\n".join([str(folder), *ours]) + "\n")
    command = folder / ".venv/bin/gateway"
    command.write_text(
        f"#!{folder}/.venv/bin/python\nimport sys\nfrom gateway.__main__ import main\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    now = time.time()
    for name in _INSTALLED:
        (folder / name).touch()
        os.utime(folder / name, (now, now))
