"""A PostgreSQL server of a test's own (Debian's package `postgresql`)."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.testing.ports import free_port


@contextmanager
def postgres_server(prepared: str) -> Iterator[str]:
    """The end of its URL, behind the role, once `prepared` has run.

    PostgreSQL refuses to run as root, so root becomes the packages' own user.
    """
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None) or shutil.which("initdb")
    assert programs is not None, "PostgreSQL is needed: apt-get install postgresql"
    bin_dir = Path(programs) if Path(programs).is_dir() else Path(programs).parent
    user = "postgres" if os.geteuid() == 0 else None
    folder, port = Path(tempfile.mkdtemp()), free_port()
    if user is not None:
        shutil.chown(folder, user)
    run = {"user": user, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([bin_dir / "initdb", "-D", "data", "-U", "owner", "--auth=trust", "-N"], check=True, **run)  # type: ignore[call-overload]
    options = ["-c", "listen_addresses=127.0.0.1", "-p", str(port), "-k", str(folder), "-F"]
    process = subprocess.Popen([bin_dir / "postgres", "-D", "data", *options], **run)  # type: ignore[call-overload]
    try:
        psql = [
            bin_dir / "psql",
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
        deadline_s = time.monotonic() + 30
        while subprocess.run([*psql, "-c", "SELECT 1"], **run).returncode:  # type: ignore[call-overload]
            assert time.monotonic() < deadline_s, "PostgreSQL does not start"
            time.sleep(0.05)
        subprocess.run([*psql, "-c", prepared], check=True, **run)  # type: ignore[call-overload]
        yield f"127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGINT)  # ends at once; SIGTERM waits for clients
        process.wait()
        shutil.rmtree(folder)
