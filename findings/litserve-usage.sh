#!/bin/sh
# litserve 0.2.19 with its OpenAI specification, and a model that yields two words.
# Expected: an answer without counted tokens has no usage, and the chunks of one stream have one id.
# Seen: usage is there and says 0 tokens, streamed or not, and each chunk has another id.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q litserve==0.2.19
cat > serve.py <<'PY'
import sys

import litserve

class Words(litserve.LitAPI):
    def setup(self, device):
        pass

    def predict(self, prompt):
        yield "Hello "
        yield "there"

if __name__ == "__main__":
    server = litserve.LitServer(Words(spec=litserve.OpenAISpec()))
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="error")
PY
cat > run.py <<'PY'
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]

def ask(stream):
    body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "Hi"}]}
    head = {"content-type": "application/json"}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    return urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head)).read().decode()

server = subprocess.Popen([sys.executable, "serve.py", str(port)], stdout=subprocess.DEVNULL, start_new_session=True)
try:
    for _ in range(240):
        try:
            whole = json.loads(ask(False))
            break
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
    chunks = [json.loads(line[6:]) for line in ask(True).splitlines() if line.startswith("data: {")]
finally:
    os.killpg(server.pid, signal.SIGKILL)
ids = {chunk["id"] for chunk in chunks}
text = "".join(chunk["choices"][0]["delta"]["content"] or "" for chunk in chunks)
print("text:", text, "usage:", whole["usage"], chunks[-1]["usage"], "ids:", len(ids), "of", len(chunks), "chunks")
zero = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
raise SystemExit(not (text == "Hello there" and whole["usage"] == chunks[-1]["usage"] == zero and len(ids) == len(chunks)))
PY
venv/bin/python run.py
