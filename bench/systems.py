"""The systems that are measured: how each is configured and started, held still while others run, and stopped."""

import hashlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench import kernel

REPOSITORY = Path(__file__).resolve().parent.parent
CLIENT_KEY = "sk-bench-client-0123456789abcdef0123456789abcdef"
UPSTREAM_KEY = "sk-bench-upstream-0123456789abcdef0123456789abcdef"
READY_WITHIN_S = 30.0
# Where to look for nginx besides PATH: distributions keep it out of an ordinary user's.
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class System:
    """One system under test; `command` has its ports filled in. `context`: it has a context lane."""

    name: str
    command: tuple[str, ...]
    port: int
    context: bool = False


class NotReadyError(Exception):
    """The error of a system that did not answer; the text quotes its output."""


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Run processes started inside on `core` only: they inherit the affinity of this one. None: on any."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before if core is None else {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Running:
    """A started system, with its process group until `stop`."""

    def __init__(self, system: System, *, core: int | None = None, folder: Path) -> None:
        self.system = system
        self._log = folder / f"{system.name}.log"
        with on_core(core), self._log.open("wb") as output:
            self._began_s = time.monotonic()
            self._process = subprocess.Popen(
                system.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                # Bytecode is kept, whatever the shell says: without it every start compiles everything.
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": ""},
                start_new_session=True,
            )

    def __repr__(self) -> str:
        return f"<Running {self.system.name!r} port={self.system.port} pid={self._process.pid}>"

    def await_ready(self, probe: bytes, *, within_s: float = READY_WITHIN_S) -> float:
        """Return the seconds from the start to the first 200 for `probe`. Raises NotReadyError if none comes."""
        answer = "nothing listens"
        while time.monotonic() < self._began_s + within_s and self._process.poll() is None:
            with suppress(OSError):
                answer = read_status_line(self.system.port, probe)
                if " 200 " in answer:
                    return time.monotonic() - self._began_s
            time.sleep(0.005)
        raise NotReadyError(f"no 200 on port {self.system.port} ({answer}); its log ends:\n{self._log_end()}")

    def _log_end(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    @property
    def processes(self) -> list[int]:
        return kernel.process_family(self._process.pid)

    def freeze(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the whole process group, as in a crash."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End the process group that this object started. Idempotent."""
        for request, grace_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            if self._process.poll() is not None:
                return
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self._process.pid, signal.SIGCONT)
                os.killpg(self._process.pid, request)
                self._process.wait(grace_s)


def read_status_line(port: int, request: bytes) -> str:
    """Return the first line of the answer to one raw request."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(request)
        return connection.makefile("rb").readline().decode("latin-1").strip()


def build_gateway(folder: Path, *, upstream_port: int, keys: bool) -> System:
    """Return this checkout's gateway, all features of its lanes on. Without `keys` it forwards the client's own key."""
    port = free_port()
    upstream = {"name": "mock", "base_url": f"http://127.0.0.1:{upstream_port}/v1"}
    scopes = ["passthrough", "context"]
    key = {"name": "bench", "sha256": hashlib.sha256(CLIENT_KEY.encode()).hexdigest(), "scopes": scopes}
    config = {
        "upstreams": [{**upstream, "api_key": UPSTREAM_KEY} if keys else upstream],
        "keys": [key] if keys else [],
        "metrics": {"enabled": True},
        "logging": {"access": False},
        "store": f"sqlite:///{folder / 'gateway.db'}",
    }
    file = folder / "gateway.yaml"
    file.write_text(json.dumps(config))  # JSON is YAML
    command = (sys.executable, "-m", "gateway", "run", "-c", str(file), "--listen", f"127.0.0.1:{port}")
    return System("gateway", command, port, context=True)


def parse_named_system(argument: str, *, upstream_port: int) -> System:
    """Return a system of the command line: NAME=COMMAND with {port} and {upstream_port}."""
    name, equals, command = argument.partition("=")
    if not (name and equals and command):
        raise SystemExit(f"--sut {argument!r}: expected NAME=COMMAND with {{port}} and {{upstream_port}} in it")
    port = free_port()
    filled = command.replace("{upstream_port}", str(upstream_port)).replace("{port}", str(port))
    return System(name, tuple(shlex.split(filled)), port)


def build_nginx(folder: Path, *, upstream_port: int) -> System | None:
    """Return nginx as a reverse proxy that streams, or None if it is not installed."""
    program = shutil.which("nginx") or shutil.which("nginx", path=SBIN)
    if program is None:
        return None
    port = free_port()
    home = folder / "nginx"
    home.mkdir()
    temporary = "".join(
        f"  {kind}_temp_path {home / kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (home / "nginx.conf").write_text(
        f"""\
daemon off;
master_process off;
worker_processes 1;
pid {home}/pid;
error_log stderr;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  tcp_nodelay on;
  keepalive_requests 1000000000;
{temporary}
  upstream mock {{
    server 127.0.0.1:{upstream_port};
    keepalive 2048;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://mock;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"""
    )
    return System("nginx", (program, "-p", str(home), "-c", str(home / "nginx.conf")), port)
