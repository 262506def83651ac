"""Texts that attack a page, and a gateway that has them in every place that a stranger can write to.

    async with strange(folder, HOSTILE) as gateway:
        pages = await furnished(gateway, HOSTILE)      # the addresses of its pages, by their names

With `PLAIN` in place of `HOSTILE` the same pages
have harmless texts of the same number of lines.
"""

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from gateways import config, until_read

from tests.mcp.misbehaving import command
from tests.support.gateway_process import GatewayProcess

Json = dict[str, Any]

#: Each would run a script, or add an element, in a page that forgot to escape it.
MARKUP: Final = (
    "<script>window.hacked = 1; alert(1)</script>",
    '<img src="https://evil.example/x.png" onerror="window.hacked = 1">',
    '"><svg onload="window.hacked = 1"><animate onbegin="window.hacked = 1" attributeName="x"/></svg>',
    "' autofocus onfocus='window.hacked = 1' x='",
    '<iframe srcdoc="<script>parent.hacked = 1</script>"></iframe>',
    '<a href="javascript:window.hacked = 1">Approve</a> [Approve](javascript:window.hacked=1)',
    '<div hx-get="/console/status" hx-trigger="load" hx-on::load="window.hacked = 1" data-hx-on:click="x"></div>',
    '<form action="https://evil.example"><button data-action="approve" formaction="/x">Approve</button></form>',
    '<base href="https://evil.example/"><meta http-equiv="refresh" content="0;url=https://evil.example/">',
    '<style>@import "https://evil.example/x.css"; body { display: none }</style>',
    "</span></div></dd></dl></article></main></textarea></title></select></script></template>",
    '<dialog open id="help"><article class="card" data-card id="live">Nothing waits for you.</article></dialog>',
    "{{ 7 * 7 }} {% raw %} ${7*7} <%= 7 %> &lt;b&gt; &#60;b&#62; \\u003cb\\u003e %3Cb%3E ]]> <!-- ",
)
#: None of these shows by itself, or each changes where or how its neighbours show.
UNSEEN: Final = (
    "rm \u202egnp.exe\u202c \u2066isolated\u2069 \u200fmark\u200e \u061c",
    "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07 \x08\x08 \x7f \x9b31m",
    "zero\u200bwidth\u200c\u200d\u2060\ufeff soft\u00adhyphen \u2028 \u2029 \u0085 nbsp\u00a0 \u3164 \u2800",
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324 e\u0301 \ufe0f",
    "carriage\rreturn \t tab \v \f end",
    "שלום 123 (abc) עולם / العربية 456",
)
#: The words of the console itself.
IMITATION: Final = (
    "Approved. The run goes on.",
    "Exactly this runs",
    "content: harmless",
    "! contains no characters of several scripts",
    "Waiting: a rule of the operator: harmless",
    "\\u{200b} \\{12 spaces} \\\\ \\n",
)


@dataclass(frozen=True)
class Texts:
    """Texts of strangers: `text` of several lines, `line` of one, `short` for names and headers."""

    text: str
    line: str
    short: str

    @property
    def lines(self) -> int:
        return self.text.count("\n") + 1


_LINES: Final = (*MARKUP, *UNSEEN, *IMITATION)
HOSTILE: Final = Texts("\n".join(_LINES), " ".join(_LINES), "\"><img src=x onerror='window.hacked=1'> Approve")
PLAIN: Final = Texts("\n".join(["some words"] * len(_LINES)), "some words " * len(_LINES), "Ann's small name & more")


def tools_of(texts: Texts, *, description: str) -> list[Json]:
    """The definitions of the MCP server `stranger`."""
    properties = {
        "text": {"type": "string", "description": texts.line, "default": texts.line},
        texts.short: {"type": "string", "description": texts.text},
        "choice": {"enum": [texts.short, "other"], "description": texts.text, "pattern": texts.short},
    }
    schema = {"type": "object", "properties": properties, "required": ["text"]}
    return [
        {"name": "note", "description": description, "inputSchema": schema, "result": texts.text},
        {"name": "Approve", "description": texts.line, "inputSchema": schema, "result": texts.line},
    ]


def write_tools(folder: Path, definitions: list[Json]) -> None:
    (folder / "tools.json").write_text(json.dumps(definitions))


def settings(folder: Path, texts: Texts, **sections: object) -> str:
    """The configuration of a gateway with this folder, whose files have these texts."""
    for name in ("files", "workflows"):
        (folder / name).mkdir()
    (folder / "files" / "read.txt").write_text(texts.text, encoding="utf-8", newline="")
    write_tools(folder, tools_of(texts, description=texts.text))
    workflow = {
        "name": "tidy",
        "category": texts.short[:60],
        "description": texts.line,
        "parameters": {
            "text": {"type": "string", "description": texts.text, "default": texts.text},
            "line": {"type": "string", "description": texts.line, "default": texts.short},
            "choice": {"enum": [texts.short, "other"], "description": texts.line},
        },
        "steps": [{"name": "answer", "prompt": "{{params.text}}"}],
    }
    (folder / "workflows" / "tidy.yaml").write_text(json.dumps(workflow))
    program, *arguments = command("defined", folder / "tools.json")
    dying = f"import sys; sys.stderr.buffer.write({texts.text.encode()!r}); sys.exit(3)"
    about = texts.line.replace("$", "$$")
    servers: Json = {
        "stranger": {"command": program, "args": arguments, "description": about},
        "broken": {"command": sys.executable, "args": ["-c", dying.replace("$", "$$")], "description": about},
    }
    return config(
        None,
        tools={"file_operations": {"roots": [str(folder / "files")], "write": True}},
        workflows={"folder": str(folder / "workflows")},
        mcp={"servers": servers},
        store=f"sqlite:///{folder}/gateway.db",
        **sections,
    )


async def api(
    gateway: GatewayProcess, path: str, body: Json | None = None, *, method: str = "POST", **headers: str
) -> Json:
    async with (
        aiohttp.ClientSession(gateway.base_url) as client,
        client.request("GET" if body is None else method, path, json=body, headers=headers) as response,
    ):
        found: Json = await response.json()
        assert response.status < 300, found
        return found


async def chat(gateway: GatewayProcess, text: str, headers: Mapping[str, str] = {}) -> Json:
    body = {"model": "demo", "messages": [{"role": "user", "content": text}]}
    return await api(gateway, "/context/v1/chat/completions", body, **headers)


@asynccontextmanager
async def strange(folder: Path, texts: Texts) -> AsyncIterator[GatewayProcess]:
    """A gateway with these texts, whose service `stranger` runs."""
    async with GatewayProcess(settings(folder, texts)) as gateway:
        await until_read(lambda: api(gateway, "/mcp/services/stranger"), lambda found: found["state"] == "running")
        yield gateway


async def asked(gateway: GatewayProcess, tool: str, arguments: Json, *, conversation: str, user: str = "") -> Json:
    """The approval that a model's call of the tool waits for."""
    headers = {"X-Context-Conversation": conversation, "X-Context-User": user}
    call = f"tool {tool} {json.dumps(arguments)}"
    answer = await chat(gateway, call, {name: value for name, value in headers.items() if value})
    assert answer["context"]["approvals"], answer["choices"]
    return await api(gateway, f"/context/approvals/{answer['context']['approvals'][0]['id']}")


async def furnished(gateway: GatewayProcess, texts: Texts) -> dict[str, str]:
    """Have these texts in every place; return the addresses of the pages that show them."""
    arguments: Json = {"text": texts.text, texts.short: texts.line, "choice": texts.short}
    deep: Json = {**arguments, "more": {texts.short: [texts.line, texts.text, None, 1.5, True]}}
    rejected = await asked(gateway, "stranger.note", arguments, conversation=texts.short + " 1", user=texts.short)
    await api(gateway, f"/context/approvals/{rejected['id']}", {"decision": "reject", "reason": texts.line})
    edited = await asked(gateway, "stranger.note", arguments, conversation=texts.short + " 2")
    decision = {"decision": "approve", "remember": "conversation", "arguments": {**arguments, "text": texts.line}}
    await api(gateway, f"/context/approvals/{edited['id']}", decision)
    done = f"/context/runs/{edited['run_id']}"
    await until_read(lambda: api(gateway, done), lambda run: run["state"] == "completed")
    await chat(gateway, f"Remember that {texts.line}", {"X-Context-User": "ann"})
    await api(gateway, "/v1/system-prompts/strange", {"text": texts.text}, method="PUT")
    pending = await asked(gateway, "stranger.note", deep, conversation=texts.short, user=texts.short)
    write = {"operation": "write", "path": "read.txt", "content": texts.line + "\n" + texts.text}
    writing = await asked(gateway, "file_operations", write, conversation=texts.short + " 3")
    return {
        "inbox": "",
        "approval-preview": f"/approvals/{writing['id']}",
        "preview": f"/approvals/{writing['id']}/preview",
        "approval": f"/approvals/{pending['id']}?edit=1",
        "approval-json": f"/approvals/{pending['id']}?as=json",
        "approval-edited": f"/approvals/{edited['id']}",
        "approval-rejected": f"/approvals/{rejected['id']}",
        "runs": f"/runs?conversation={quote(texts.short)}",
        "run-waiting": f"/runs/{pending['run_id']}",
        "run": f"/runs/{edited['run_id']}",
        "run-raw": f"/runs/{edited['run_id']}/raw",
        "workflows": f"/workflows?category={quote(texts.short[:60])}",
        "workflow": "/workflows/tidy",
        "tools": "/tools",
        "service": "/services/stranger",
        "service-broken": "/services/broken",
        "prompts": "/prompts",
        "prompt": "/prompts/strange",
        "memories": "/memories?user=ann",
        "memories-nobody": f"/memories?user={quote(texts.short)}",
        "remembered": "/remembered",
        "playground": "/playground",
        "status": "/status",
    }
