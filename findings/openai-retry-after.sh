#!/bin/sh
# openai 3.57.0 (Python) and openai 7.59.0 (Node): a 429 whose Retry-After is five minutes.
# Expected: both of one provider's SDKs wait for so long, or both give up.
# Seen: the one for Python gives up after one request, the one for Node does not wait and sends two more within seconds.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q openai==3.57.0
npm install --silent --no-audit --no-fund openai@7.59.0
cat > ask.mjs <<'JS'
import OpenAI from 'openai'
const client = new OpenAI({ baseURL: process.argv[2], apiKey: 'k' })
const error = await client.chat.completions.create({ model: 'm', messages: [{ role: 'user', content: 'Hi' }] }).catch((e) => e)
console.log('node:', error.constructor.name)
JS
cat > run.py <<'PY'
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openai

taken = []

class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        taken.append(self.path)
        body = json.dumps({"error": {"message": "Slow down.", "type": "requests", "code": "rate_limit_exceeded"}}).encode()
        self.send_response(429)
        self.send_header("retry-after", "300")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1"
try:
    openai.OpenAI(base_url=url, api_key="k").chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
except openai.RateLimitError as error:
    print("python:", type(error).__name__)
python = len(taken)
subprocess.run(["node", "ask.mjs", url], check=True)
node = len(taken) - python
print("requests by python:", python, "by node:", node)
raise SystemExit((python, node) != (1, 3))
PY
venv/bin/python run.py
