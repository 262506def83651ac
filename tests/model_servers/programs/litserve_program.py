"""LitServe without a model, in an environment of its own (`python litserve_program.py PORT`)."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import litserve

_OWN = {"tool": "file_operations", "parameters": {"operation": "read", "path": "notes.txt"}, "terminate": False}


class Scripted(litserve.LitAPI):
    """Says what the last message asks for, in pieces."""

    def setup(self, device: str) -> None:
        """Load nothing."""

    def predict(self, request: Any) -> Iterator[dict[str, Any]]:
        """Yield the deltas of an answer."""
        last = request.messages[-1]
        said = str(last.content) if last.role == "user" else ""
        if "look it up" in said:
            function = {"name": "look_up", "arguments": '{"word": "safe"}'}
            call = {"id": "call_1", "type": "function", "index": 0, "function": function}
            yield {"role": "assistant", "content": "", "tool_calls": [call]}
            return
        text = json.dumps(_OWN) if "read my notes" in said else "Behind the mirror."
        yield {"role": "assistant", "content": text[:9]}
        yield {"role": "assistant", "content": text[9:]}


if __name__ == "__main__":
    api = Scripted(spec=litserve.OpenAISpec())
    server = litserve.LitServer(api, accelerator="cpu")
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning")
