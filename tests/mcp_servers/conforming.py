"""The tools, prompts and resources that the protocol's suite for servers asks for, as a server on standard input.

The suite tests the gateway in front of it. Standard library only.
"""

import sys
import time
from typing import Any, Final

from tests.mcp.behaving import Json, Server, text

PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV: Final = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
IMAGE: Final[Json] = {"type": "image", "data": PNG, "mimeType": "image/png"}
STATIC: Final = "This is the content of the static text resource."
TOOLS: Final = {
    "test_simple_text": "Returns simple text",
    "test_image_content": "Returns an image",
    "test_audio_content": "Returns a sound",
    "test_embedded_resource": "Returns a resource",
    "test_multiple_content_types": "Returns several kinds of content",
    "test_error_handling": "Always returns an error",
    "test_tool_with_progress": "Reports progress",
}
#: The gateway holds calls of these, and so asks for input.
HELD: Final = tuple(
    f"test_input_required_result_{what}" for what in ("elicitation", "request_state", "tampered_state", "capabilities")
)
HEADER: Final = "test_x_mcp_header"
SCHEMA: Final[Json] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def resource(uri: str, content: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": "text/plain", "text": content}}


class Conforming(Server):
    def start(self) -> None:
        plain = {"type": "object", "properties": {}}
        self.tools = {
            name: {"name": name, "description": description, "inputSchema": plain}
            for name, description in TOOLS.items()
        }
        for name in HELD:
            self.tools[name] = {"name": name, "description": "Waits for a person", "inputSchema": plain}
        region = {"type": "string", "x-mcp-header": "Region", "description": "Also in a header"}
        self.tools[HEADER] = {
            "name": HEADER,
            "description": "Has an argument that is in a header, too",
            "inputSchema": {"type": "object", "properties": {"region": region}, "required": ["region"]},
        }
        self.tools["json_schema_2020_12_tool"] = {
            "name": "json_schema_2020_12_tool",
            "description": "Has a schema of JSON Schema 2020-12",
            "inputSchema": SCHEMA,
        }

    def initialized(self, params: Json) -> Json:
        capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
        return {**super().initialized(params), "capabilities": capabilities}

    def asked(self, request_id: Any, method: str, params: Json) -> None:
        if method == "resources/read":
            self.read(request_id, params["uri"])
        elif method == "prompts/get":
            self.answer(request_id, {"messages": self.prompt(params["name"], params.get("arguments") or {})})
        elif method == "prompts/list":
            wanted = {
                "test_prompt_with_arguments": ("arg1", "arg2"),
                "test_prompt_with_embedded_resource": ("resourceUri",),
            }
            names = ("test_simple_prompt", "test_prompt_with_image", *wanted)
            prompts = [
                {
                    "name": name,
                    "description": f"The prompt {name}",
                    "arguments": [{"name": one, "description": one, "required": True} for one in wanted.get(name, ())],
                }
                for name in names
            ]
            self.answer(request_id, {"prompts": prompts})
        elif method == "resources/list":
            static = {"uri": "test://static-text", "name": "text", "description": "A text", "mimeType": "text/plain"}
            binary = {"uri": "test://static-binary", "name": "png", "description": "A png", "mimeType": "image/png"}
            self.answer(request_id, {"resources": [static, binary]})
        elif method == "resources/templates/list":
            template = {"uriTemplate": "test://template/{id}/data", "name": "data", "mimeType": "application/json"}
            self.answer(request_id, {"resourceTemplates": [template]})
        else:
            super().asked(request_id, method, params)

    def read(self, request_id: Any, uri: str) -> None:
        if uri == "test://static-text":
            content: Json = {"uri": uri, "mimeType": "text/plain", "text": STATIC}
        elif uri == "test://static-binary":
            content = {"uri": uri, "mimeType": "image/png", "blob": PNG}
        elif uri.startswith("test://template/"):
            number = uri.split("/")[3]
            data = f'{{"id":"{number}","templateTest":true,"data":"Data for ID: {number}"}}'
            content = {"uri": uri, "mimeType": "application/json", "text": data}
        else:
            self.refuse(request_id, f"Resource not found: {uri}", code=-32602)
            return
        self.answer(request_id, {"contents": [content]})

    def prompt(self, name: str, arguments: Json) -> list[Json]:
        said: Json = {"type": "text", "text": "This is a simple prompt for testing."}
        if name == "test_prompt_with_arguments":
            said = {"type": "text", "text": f"arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'"}
        before: list[Json] = []
        if name == "test_prompt_with_embedded_resource":
            before = [resource(arguments["resourceUri"], "Embedded resource content for testing.")]
        elif name == "test_prompt_with_image":
            before = [IMAGE]
        return [{"role": "user", "content": content} for content in (*before, said)]

    def do_test_simple_text(self, arguments: Json) -> Json:
        return text("This is a simple text response for testing.")

    def do_test_image_content(self, arguments: Json) -> Json:
        return {"content": [IMAGE]}

    def do_test_audio_content(self, arguments: Json) -> Json:
        return {"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]}

    def do_test_embedded_resource(self, arguments: Json) -> Json:
        return {"content": [resource("test://embedded-resource", "This is an embedded resource content.")]}

    def do_test_multiple_content_types(self, arguments: Json) -> Json:
        embedded = resource("test://mixed-content-resource", "mixed")
        return {"content": [*text("Multiple content types test:")["content"], IMAGE, embedded]}

    def do_test_error_handling(self, arguments: Json) -> Json:
        return {**text("This tool intentionally returns an error for testing"), "isError": True}

    def do_test_tool_with_progress(self, arguments: Json) -> Json:
        token = arguments["_"]["params"].get("_meta", {}).get("progressToken")
        for progress in (0, 50, 100):
            if token is not None:
                of = {"progressToken": token, "progress": progress, "total": 100, "message": f"{progress} of 100"}
                self.notify("notifications/progress", of)
            time.sleep(0.3)  # of reports within a tenth of a second, the gateway sends the last one only
        return text("done")

    def do_test_x_mcp_header(self, arguments: Json) -> Json:
        return text(arguments["region"])

    def do_json_schema_2020_12_tool(self, arguments: Json) -> Json:
        return text("fits")


if __name__ == "__main__":
    Conforming(sys.argv[1:]).run()
