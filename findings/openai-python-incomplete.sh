#!/bin/sh
# openai 3.57.0 (Python).
# Expected: a Response cut by `max_output_tokens` ends a stream of `responses.stream()` with its text.
# Seen: the event `response.incomplete` arrives, then `get_final_response()` raises a RuntimeError.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q openai==3.57.0
cat > run.py <<'PY'
import json, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from openai import OpenAI

part = {"type": "output_text", "text": "Hel", "annotations": []}
item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "incomplete", "content": [part]}
base = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [], "error": None, "metadata": {}}
cut = {**base, "status": "incomplete", "output": [item], "incomplete_details": {"reason": "max_output_tokens"}}
at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
EVENTS = [
    {"type": "response.created", "response": {**base, "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress", "content": []}},
    {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
    {"type": "response.output_text.delta", **at, "delta": "Hel", "logprobs": []},
    {"type": "response.output_item.done", "output_index": 0, "item": item},
    {"type": "response.incomplete", "response": cut},
]

class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for number, event in enumerate(EVENTS):
            text = json.dumps({**event, "sequence_number": number})
            self.wfile.write(f"event: {event['type']}\ndata: {text}\n\n".encode())
    def log_message(self, *_): pass

server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="k", max_retries=0)
seen, raised = [], None
try:
    with client.responses.stream(model="m", input="Hi") as stream:
        seen = [event.type for event in stream]
        stream.get_final_response()
except Exception as error:
    raised = error
print("events:", seen, "raised:", repr(raised))
raise SystemExit(0 if isinstance(raised, RuntimeError) and seen[-1:] == ["response.incomplete"] else 1)
PY
venv/bin/python run.py
