#!/bin/sh
# openai 3.57.0 (Python), which reads with httpx2.
# Expected: a client that read a stream to `[DONE]` reads the body to its end, and keeps the connection.
# Seen: it closes the connection where the end of the body comes after the event, so the next request opens another.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q openai==3.57.0
cat > run.py <<'PY'
import json, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from openai import OpenAI

released = threading.Event()
peers = []

class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        peers.append(self.client_address)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        text = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        self.wfile.flush()
        if len(peers) == 1:
            released.wait()
        try:
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
    def log_message(self, *_): pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
client = OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="k", max_retries=0)
ask = lambda: [c.choices[0].delta.content for c in client.chat.completions.create(
    model="m", messages=[{"role": "user", "content": "Hi"}], stream=True)]
first = ask()  # returns while the server still holds the end of the body back
released.set()
ask()
print("text:", first, "connections for two requests:", len(set(peers)))
raise SystemExit(0 if first == ["Hi"] and len(set(peers)) == 2 else 1)
PY
timeout 60 venv/bin/python run.py
