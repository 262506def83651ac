"""A probe of one worker's event loop, until its standard input ends: `python -m bench.probe PORT PID`.

It asks the worker for its health every few milliseconds. The CPU time that the loop's thread takes from the question to
the answer is what was in the question's way: several pieces of work where several were due. Unlike the time by the
clock it does not grow with other work on the machine.
"""

import json
import select
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from bench import kernel

_EVERY_S: Final = 0.003
_QUESTION: Final = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


def main() -> None:
    """Print the longest hold, in milliseconds of CPU and of the clock."""
    port, root = map(int, sys.argv[1:])
    held_ms = waited_ms = 0.0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        _request_probe(connection)
        worker = _find_server(connection, kernel.process_family(root))
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], _EVERY_S)[0]:
            before_s, began_s = _read_loop_s(worker), time.perf_counter()
            _request_probe(connection)
            waited_ms = max(waited_ms, (time.perf_counter() - began_s) * 1e3)
            held_ms = max(held_ms, (_read_loop_s(worker) - before_s) * 1e3)
    print(json.dumps({"held_ms": held_ms, "waited_ms": waited_ms}))


def _request_probe(connection: socket.socket) -> None:
    connection.sendall(_QUESTION)
    answer = b""
    while not answer.endswith(b"}") and not answer.endswith(b"}\n"):
        if not (data := connection.recv(65536)):
            raise SystemExit("the gateway closed the connection of the probe")
        answer += data


def _read_loop_s(worker: int) -> float:
    """Return the CPU time of the main thread, which runs the event loop."""
    return int(Path(f"/proc/{worker}/task/{worker}/schedstat").read_text().split()[0]) / 1e9


def _find_server(connection: socket.socket, family: list[int]) -> int:
    """Return the process that has the other end of this connection."""
    ours, theirs = (f"0100007F:{port:04X}" for _, port in (connection.getsockname(), connection.getpeername()))
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    (inode,) = [fields[9] for fields in lines if fields[1:3] == [theirs, ours]]
    for process in family:
        with suppress(OSError):
            if any(str(file.readlink()) == f"socket:[{inode}]" for file in Path(f"/proc/{process}/fd").iterdir()):
                return process
    raise SystemExit("no process of the gateway has the connection of the probe")


if __name__ == "__main__":
    main()
