"""An MCP server on standard input and output with prompts and resources beside its tools; standard library only."""

import sys
from pathlib import Path
from typing import Any, Final

from tests.mcp.behaving import Json, Server, text

#: Four characters each: a picture that no socket's buffers can hold.
_QUARTERS: Final = 6 << 18


class Offering(Server):
    """A server whose tool `add` has everything that a definition can have."""

    def start(self) -> None:
        self.tools["add"] |= {
            "title": "Adder",
            "annotations": {"readOnlyHint": True},
            "outputSchema": {"type": "object", "properties": {"sum": {"type": "number"}}},
            "icons": [{"src": "https://example.com/add.png"}, {"src": "file:///etc/passwd"}],
        }
        self.tools["wait"] = {**self.tools["echo"], "name": "wait"}
        for name in ("link", "hurt", "picture"):
            self.tools[name] = {**self.tools["echo"], "name": name, "inputSchema": {"type": "object"}}

    def initialized(self, params: Json) -> Json:
        capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
        return {**super().initialized(params), "capabilities": capabilities}

    def asked(self, request_id: Any, method: str, params: Json) -> None:
        uri = params.get("uri", "")
        answers: dict[str, Json] = {
            "prompts/list": {"prompts": [{"name": "greet", "arguments": [{"name": "who"}]}]},
            "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": f"Greet {params}"}}]},
            "resources/list": {"resources": [{"uri": "file:///a b", "name": "a"}]},
            "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "file:///{name}", "name": "any"}]},
            "resources/read": {"contents": [{"uri": uri, "text": f"Content of {uri}"}]},
        }
        if method in answers:
            self.answer(request_id, answers[method])
        else:
            super().asked(request_id, method, params)

    def do_add(self, arguments: Json) -> Json:
        total = arguments["a"] + arguments["b"]
        return {**text(str(total)), "structuredContent": {"sum": total}}

    def do_link(self, arguments: Json) -> Json:
        return {"content": [{"type": "resource_link", "uri": "file:///a b", "name": "a"}]}

    def do_picture(self, arguments: Json) -> Json:
        self.do_progress({**arguments, "steps": 3, "pause": 0.06})
        return {"content": [{"type": "image", "mimeType": "image/png", "data": "iVBO" * _QUARTERS}]}

    def do_wait(self, arguments: Json) -> Json:
        return text(Path(arguments["text"]).read_text())  # of a pipe: it opens once somebody writes to it

    def do_hurt(self, arguments: Json) -> Json:
        return {"content": [{"type": "no such kind"}, {"type": "text", "text": "read this"}]}


if __name__ == "__main__":
    Offering(sys.argv[1:]).run()
