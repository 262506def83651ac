#!/bin/sh
# redis 8.1.0 (Python), with its default settings, in front of a server whose connection ends before the first reply.
# Expected: a command that may have been executed is not sent again by itself, or only where that changes nothing.
# Seen: INCRBY and LPUSH are sent again on a new connection, so a counter goes up twice and a list gets two entries.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q redis==8.1.0
cat > run.py <<'PY'
import socket
import threading

import redis

taken = []

def answer(connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as stream:
        while head := stream.readline():
            words = []
            for _ in range(int(head[1:])):
                size = int(stream.readline()[1:])
                words.append(stream.read(size + 2)[:size].decode())
            name = words[0].upper()
            if name in ("INCRBY", "LPUSH"):
                taken.append(name)
                if taken.count(name) == 1:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                connection.sendall(f":{taken.count(name)}\r\n".encode())
            else:
                connection.sendall(b"+OK\r\n" if name != "HELLO" else b"-ERR unknown command\r\n")

def serve(listener: socket.socket) -> None:
    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=serve, args=(listener,), daemon=True).start()
client = redis.Redis(port=listener.getsockname()[1], protocol=2)
print("incr:", client.incr("spent"), "lpush:", client.lpush("jobs", "one"), "the server took:", taken)
raise SystemExit(taken != ["INCRBY", "INCRBY", "LPUSH", "LPUSH"])
PY
venv/bin/python run.py
