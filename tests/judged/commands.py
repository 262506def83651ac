"""Commands that would have an effect, by a grammar: three userlands, what developers run, and the system's own calls.

They run where no effect is possible, without any judge. Each text that they write holds the mark of its folder.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

_MARK: Final = "LEAK"
SHELLS: Final = (("dash",), ("bash",), ("bash", "--posix", "+B"), ("busybox", "sh"))

_PATHS: Final = (
    *("a", "sub/b", "'b c'", "./-n", "new", "sub/new", "link", "hard", "empty", "sub", ".", "deep/er/x", "*", "run"),
    *("../secret", "$HOME/a", "../outside/x", "out_link", "../new", "~/new", ".git/config", ".git/index", "data.db"),
    *("/tmp/x", "$TMPDIR/x", "/dev/shm/LEAK", "/usr/bin/LEAK", "/etc/LEAK", "/var/tmp/LEAK", "kmsg", "socket"),
)
_FIFOS: Final = ("fifo", "sub/fifo", "../fifo")
_DEVICES: Final = ("/dev/null", "/dev/full", "/dev/zero", "/dev/urandom", "/dev/kmsg", "/dev/mem", "/dev/tty", "kmsg")
#: Of a thousand commands: the machine's programs, git, calls of Python, node and npm.
_SHARES: Final = (("write", 800), ("machine", 150), ("git", 25), ("call", 23), ("slow", 2))


def made(chance: random.Random, *, port: int, udp: int, mark: str) -> Iterator[str]:
    """Yield texts without end; the ports are those of listeners on this machine."""
    kinds, weights = zip(*_SHARES, strict=True)
    while True:
        text = _one(chance, chance.choices(kinds, weights)[0], port=port, udp=udp)
        yield _wrapped(chance, text, _one(chance, "write", port=port, udp=udp)).replace(_MARK, mark)


def is_slow(text: str) -> bool:
    """Return whether a command needs an interpreter or a repository, which take longer to start."""
    return any(name in text for name in ("python3", "node", "npm", "npx", "git "))


@cache
def templates() -> Mapping[str, Sequence[str]]:
    """Return the templates of commands.txt by their kind."""
    found: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("commands.txt").read_text().splitlines():
        if line.startswith("[") and line.endswith("]") and line[1:-1].isalpha():
            kind = found.setdefault(line[1:-1], [])
        elif line and not line.startswith("# "):
            kind.append(line.replace("\\n", "\n"))
    return found


def _one(chance: random.Random, kind: str, *, port: int, udp: int) -> str:
    path, other = (chance.choice(_FIFOS) if chance.random() < 0.003 else chance.choice(_PATHS) for _ in range(2))
    if kind == "call":
        path, other = path.strip("'").replace("$HOME/", ""), other.strip("'").replace("$HOME/", "")
    quick = chance.choice(("a", "sub/b", "'b c'", "/etc/hostname", "empty"))
    numbers = {"n": chance.randrange(8), "port": port, "udp": udp}
    words = {"p": path, "q": other, "t": quick, "d": chance.choice(_DEVICES), "pb": path.encode(), "qb": other.encode()}
    text = chance.choice(templates()[kind]).format(**numbers, **words)
    if kind == "call":
        head = "import os,socket,fcntl,mmap,ctypes;c=ctypes.CDLL(None,use_errno=True);"
        return f'python3 -ISBc "{head}{text}"'
    name, _, rest = text.partition(" ")
    return f"busybox {name} {rest}" if name in templates()["busybox"] and chance.random() < 0.3 else text


def _wrapped(chance: random.Random, text: str, other: str) -> str:
    around = chance.choice(templates()["around"])
    quoted = "'" + text.replace("'", "'\\''") + "'"
    return around.format(c=text, e=other, s=quoted)
