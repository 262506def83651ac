"""A Valkey or Redis server of a test's own (Debian's package `valkey-server` or `redis-server`)."""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gateway.limits.valkey_quota import PREFIX
from gateway.testing.ports import free_port


class ValkeyServer:
    """A server in a folder of its own, which keeps nothing over a restart unless `keeps`."""

    def __init__(self, *, keeps: bool = False) -> None:
        program = shutil.which("valkey-server") or shutil.which("redis-server")
        assert program is not None, "Valkey or Redis is needed: apt-get install redis-server"
        self.folder, self.port = Path(tempfile.mkdtemp()), free_port()
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        self._command = [program, *options, "--appendonly", "yes" if keeps else "no"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        deadline_s = time.monotonic() + 30
        while not self._is_there():
            assert self._process.poll() is None and time.monotonic() < deadline_s, "the server does not start"
            time.sleep(0.01)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder)

    def send(self, *words: str) -> bytes:
        """Send a command, and return the beginning of its answer."""
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall(" ".join(words).encode() + b"\r\n")
            return client.recv(1 << 16)

    def empty(self) -> None:
        """Have no shares, on a server that has been at work for long: it grants them at once."""
        self.send("FLUSHALL")
        run = self.send("INFO", "server").partition(b"run_id:")[2].split()[0].decode()
        self.send("HSET", f"{PREFIX}life", "run", run, "epoch", "tests", "began_s", "0", "lost", "0")

    def _is_there(self) -> bool:
        with suppress(OSError):
            return self.send("PING").startswith(b"+PONG")
        return False


@contextmanager
def valkey_server(*, keeps: bool = False) -> Iterator[ValkeyServer]:
    server = ValkeyServer(keeps=keeps)
    try:
        server.start()
        yield server
    finally:
        server.close()
