"""The command lines of real MCP servers, and one that is reached over HTTP."""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
NODE: Final = Path(__file__).with_name("node")
_PACKAGES: Final = NODE / "node_modules" / "@modelcontextprotocol"
_PYTHON: Final = ROOT / ".venv-mcp-servers" / "bin"
_OLD_PYTHON: Final = ROOT / ".venv-mcp-servers-old" / "bin"


@dataclass(frozen=True)
class Program:
    """A server that is started, as an `mcpServers` block names it."""

    command: str
    args: tuple[str, ...] = ()

    @property
    def entry(self) -> dict[str, object]:
        # On a busy machine their imports alone may take longer than the usual limit.
        return {"command": self.command, "args": list(self.args), "start_timeout": 60}


def time_server() -> Program:
    """`get_current_time`, `convert_time`; where it is UTC."""
    return Program(str(_PYTHON / "mcp-server-time"), ("--local-timezone", "UTC"))


def git_server(repository: Path) -> Program:
    """`git_status`, `git_log`, `git_commit` and more, in this repository only."""
    return Program(str(_PYTHON / "mcp-server-git"), ("--repository", str(repository)))


def sqlite_server(database: Path) -> Program:
    """`read_query`, `write_query`, `list_tables` and more; makes the database; of before the SDK's version 2."""
    return Program(str(_OLD_PYTHON / "mcp-server-sqlite"), ("--db-path", str(database)))


def filesystem_server(folder: Path) -> Program:
    """`read_text_file`, `write_file`, `list_directory` and more, in this folder only."""
    return Program("node", (str(_PACKAGES / "server-filesystem" / "dist" / "index.js"), str(folder)))


def everything_server() -> Program:
    """One of each kind of tool: `echo`, `get-tiny-image`, `trigger-long-running-operation` with its progress, ..."""
    return Program("node", (str(_PACKAGES / "server-everything" / "dist" / "index.js"), "stdio"))


@contextlib.contextmanager
def everything_over_http() -> Iterator[str]:
    """The address of the same server while it serves streamable HTTP."""
    module = _PACKAGES / "server-everything" / "dist" / "index.js"
    with subprocess.Popen(
        ["node", f"--import={NODE / 'loopback.mjs'}", str(module), "streamableHttp"],
        env={"PATH": os.environ["PATH"], "PORT": "0"},
        stdout=subprocess.DEVNULL,  # it tells of every request
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            told = ""
            while not (found := re.search(r"http://\S+(?=\n)", told)):
                line = process.stderr.readline()
                assert line, f"the server ended: {told}"
                told += line
            yield f"{found[0]}/mcp"
        finally:
            process.terminate()


def make_repository(folder: Path) -> Path:
    """A git repository with one commit, which nothing of this machine's configuration changes."""
    folder.mkdir()
    folder.joinpath("README").write_text("Two lanes.\n", encoding="utf-8")
    alone = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for command in (
        ("init", "--quiet", "--initial-branch=main"),
        ("config", "user.name", "Ada"),
        ("config", "user.email", "ada@example.com"),
        ("config", "commit.gpgSign", "false"),
        ("add", "README"),
        ("commit", "--quiet", "--message=First lane"),
    ):
        subprocess.run(("git", *command), cwd=folder, env=alone, check=True)
    return folder
