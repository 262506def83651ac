"""A stand-in for the gateway's command line: same flags, answers /health/ready, and misbehaves on request."""

import argparse
import http.server
import os
import signal
import subprocess
import sys
from pathlib import Path


class Health(http.server.BaseHTTPRequestHandler):
    not_ready = int(os.environ.get("NOT_READY", "0"))

    def do_GET(self) -> None:
        ready = Health.not_ready <= 0
        Health.not_ready -= 1
        self.send_response(200 if ready and self.path == "/health/ready" else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, template: str, *args: object) -> None:
        print(template % args, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["run"])
    parser.add_argument("-c", dest="config", type=Path)
    parser.add_argument("--listen")
    parser.add_argument("--misbehave", choices=["exit", "child", "deaf", "never-ready"])
    options = parser.parse_args()
    host, _, port = options.listen.rpartition(":")
    print(options.config.read_text(), os.environ.get("GREETING"), flush=True)
    if options.misbehave == "exit":
        print("cannot start: no such thing", file=sys.stderr)
        return 3
    if options.misbehave == "child":
        # In a session of its own, so that only its descent tells whose it is.
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
        print(f"child {child.pid}", flush=True)
    if options.misbehave == "never-ready":
        Health.not_ready = 1 << 30
    server = http.server.HTTPServer((host, int(port)), Health)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.misbehave == "deaf" else lambda *_: os._exit(0))
    signal.signal(signal.SIGHUP, lambda *_: print("reloaded", flush=True))
    server.serve_forever(0.05)
    return 0


if __name__ == "__main__":
    sys.exit(main())
