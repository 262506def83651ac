"""The description of the API: complete, valid, and true of real answers."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema_rs

from gateway.api.openapi.document import build_document, describe_api, render
from gateway.api.openapi.operations import OPERATIONS
from gateway.api.openapi.schemas import build_schemas
from tests.e2e.models import calls, says
from tests.e2e.talking import World, desk, talking
from tests.e2e.workflow_cases import ECHO, folder_of

API = build_document()


def test_operation_names_are_unique_and_references_resolve() -> None:
    """Each operation has its name, and each reference leads somewhere."""
    names = [one.name for one in OPERATIONS]
    assert len(set(names)) == len(names)
    found = re.findall(r'"\$ref":"#/components/(\w+)/([\w-]+)"', describe_api().decode())
    assert found
    for kind, name in found:
        assert name in API["components"][kind], name
    assert {one.body for one in OPERATIONS} <= {*build_schemas(), None}
    mentioned = {name for kind, name in found if kind == "schemas"}
    assert {*build_schemas()} == mentioned | ({*build_schemas()} & {"McpServer"})


def test_the_document_is_up_to_date() -> None:
    """`python -m gateway.api.openapi.document` writes it."""
    assert (Path(__file__).parents[3] / "docs" / "api.md").read_text() == render()


# What is answered.


class Asker:
    """Asks pages, and holds each answer to its description."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.seen: set[str] = set()

    async def __call__(
        self,
        asked: str,
        content: Any = None,
        /,
        *,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        **path: str,
    ) -> Any:
        operation = next(one for one in OPERATIONS if one.name == asked)
        target = operation.path.format(**path) + query
        given = {} if content is None else {"Content-Type": "application/json"}
        data = None if content is None else json.dumps(content)
        url = self._world.gateway.base_url + target
        async with (
            aiohttp.ClientSession() as session,
            session.request(operation.method, url, data=data, headers={**given, **(headers or {})}) as response,
        ):
            text = await response.read()
            described = API["paths"][operation.path][operation.method.lower()]
            assert str(response.status) in described["responses"], (asked, response.status, text)
            answer = described["responses"][str(response.status)]
            if "$ref" in answer:
                answer = API["components"]["responses"][answer["$ref"].rpartition("/")[2]]
            schema = answer.get("content", {}).get(response.content_type, {}).get("schema")
            assert (schema is None) == (response.content_type != "application/json"), asked
            if schema is not None:
                jsonschema_rs.validator_for({**schema, "components": API["components"]}).validate(json.loads(text))
            self.seen.add(asked)
            return json.loads(text) if schema is not None else None


ASKED = {"model": "m", "messages": [{"role": "user", "content": "Write it"}]}
NEVER = {"trust_llm": "never"}
WRITE = calls("file_operations", operation="write", path="new.txt", content="x")


async def test_page_answers_match_the_api_description(tmp_path: Path) -> None:
    """Successes and refusals of pages of every kind."""
    answers = (WRITE, says("Done."))
    settings: dict[str, Any] = {
        "tools": desk(tmp_path, write=True),
        "prompts": {"p": {"text": "x"}},
        "risk": NEVER,
        "workflows": {"folder": str(folder_of(tmp_path, ECHO))},
        "mcp": {"servers": {"away": {"command": "/nowhere"}}},
    }
    async with talking(*answers, **settings) as world:
        asks = Asker(world)
        turn = await asks("createChat", ASKED, headers={"X-Context-Approvals": "turn"})
        (approval,) = turn["context"]["approvals"]
        assert (await asks("listApprovals", query="?status=pending&limit=5"))["data"]
        await asks("getApproval", id=approval["id"])
        await asks("getApproval", id="ap_x")
        await asks("noteOnApproval", {"text": "Look."}, id=approval["id"])
        assert (await asks("assignApproval", {"to": "me"}, id=approval["id"]))["notes"]
        assert (await asks("groupApprovals", query="?by=caller"))["data"]
        assert (await asks("previewApproval", id=approval["id"]))["available"]
        await asks("previewApproval", id="ap_x")
        assert (await asks("getSummary"))["pending"] == 1
        await asks("listApprovals", query="?limit=0")
        await asks("listRuns")
        await asks("listRuns", query="?kind=chat&caller=local&since=0&until=99999999999")
        assert (await asks("getRun", id=approval["run_id"]))["model_calls"]
        await asks("decideApproval", {"decision": "maybe"}, id=approval["id"])
        await asks("decideApproval", {"decision": "approve", "remember": "run"}, id=approval["id"])
        await asks("decideApproval", {"decision": "reject"}, id=approval["id"])
        await asks("decideApprovals", {"decision": "approve", "approvals": [{"id": "ap_x"}, {"id": approval["id"]}]})
        await asks("listGrants")
        await asks("revokeGrant", id="g")
        await asks("listAsks")
        await asks("revokeAsk", id="a")
        await asks("cancelRun", id=approval["run_id"])
        await asks("settleStep", {"step": 0}, id=approval["run_id"])
        await asks("getRun", id="run_x")
        await asks("listAudit", query="?limit=200")
        await asks("verifyAudit")
        assert (await asks("listTools"))["data"]
        await asks("listMemories")
        assert (await asks("deleteMemories", query="?user=ann"))["deleted"] == 0
        assert (await asks("listUpstreams"))["data"]
        await asks("getUsage")
        await asks("listLimits")
        await asks("listKeys")
        await asks("getStatus")
        await asks("createChat", {"model": "m"})
        await asks("createChat", ASKED, headers={"X-Context-Tools": "nothing"})
        await asks("explain", ASKED)
        await asks("putPrompt", {"text": "Be terse."}, id="mine")
        await asks("putPrompt", {"text": "Be terse."}, id="p")
        await asks("listPrompts")
        await asks("getPrompt", id="mine")
        await asks("getEnhancedPrompt", id="mine")
        await asks("deletePrompt", id="mine")
        await asks("getPrompt", id="mine")
        await asks("listWorkflows")
        await asks("listWorkflowCategories")
        await asks("getWorkflow", name="none")
        await asks("runWorkflow", {}, name="none")
        await asks("runWorkflow", {"parameters": {"nope": 1}}, name="echo")
        assert (await asks("runWorkflow", {"parameters": {"text": "x"}}, name="echo"))["result"] == "[x]"
        later = {"Prefer": "respond-async"}
        await asks("runWorkflow", {"parameters": {"text": "x"}}, name="echo", headers=later)
        await asks("getWorkflow", name="echo")
        assert (await asks("listServices"))["data"]
        await asks("getService", name="away")
        await asks("listServiceTools", name="away")
        await asks("restartService", name="away")
        await asks("acceptService", name="away")
        await asks("getService", name="none")
        await asks("addService", {"name": "x"})
        await asks("putService", {"command": 5}, name="x")
        await asks("deleteService", name="x")
        await asks("startService", name="x")
        for name in ("getRoot", "getLiveness", "getReadiness", "getMetrics", "getDescription"):
            await asks(name)
        assert len(asks.seen) > 30


async def test_responses_api_answers_match_the_api_description(tmp_path: Path) -> None:
    """Successes and refusals of each page of the Responses API."""
    answers = (says("one"), says("two"), WRITE, says("A summary."), says("four"))
    async with talking(*answers, tools=desk(tmp_path, write=True), risk=NEVER) as world:
        asks = Asker(world)
        made = await asks("createResponse", {"model": "m", "input": "Hi"})
        one, item = made["id"], {"role": "user", "content": "Hi"}
        later = await asks("createResponse", {"model": "m", "input": "Hi", "background": True})
        await asks("getResponse", id=later["id"], query="?stream=true")  # to its end
        gateway = [{"type": "mcp", "server_label": "gateway"}]
        asked = await asks("createResponse", {"model": "m", "input": "Write it", "tools": gateway})
        assert asked["output"][-1]["type"] == "mcp_approval_request"
        await asks("createResponse", {"model": "m", "input": "Hi", "nope": 1})
        await asks("createResponse", {"model": "m", "input": "Hi", "previous_response_id": "resp_x"})
        await asks("createResponse", {"model": "m", "input": "Hi", "conversation": "conv_x"})
        await asks("createResponse", {"model": "m", "input": [{"type": "item_reference", "id": "msg_x"}]})
        assert (await asks("getResponse", id=one)) == made
        await asks("getResponse", id=one, query="?stream=true")
        await asks("getResponse", id="resp_x")
        assert (await asks("listInputItems", id=one, query="?include[]=reasoning.encrypted_content"))["data"]
        await asks("listInputItems", id=one, query="?limit=0")
        await asks("cancelResponse", id=one)
        await asks("cancelResponse", id=later["id"])
        compacted = await asks("compactResponse", {"model": "m", "input": [item]})
        await asks("compactResponse", {"input": [item]})
        await asks("countInputTokens", {"model": "m", "input": [item]})
        conversation = (await asks("createConversation", {"items": [item], "metadata": {"a": "b"}}))["id"]
        await asks("createConversation", {"items": [{"type": "item_reference", "id": "msg_x"}]})
        await asks("getConversation", id=conversation)
        await asks("updateConversation", {"metadata": {}}, id=conversation)
        await asks("updateConversation", {}, id=conversation)
        added = await asks("addItems", {"items": compacted["output"]}, id=conversation)
        await asks("addItems", {"items": [5]}, id=conversation)
        await asks("createResponse", {"model": "m", "input": "Hi", "conversation": conversation})
        assert (await asks("listItems", id=conversation, query="?order=asc&limit=1"))["has_more"]
        item_id = added["data"][0]["id"]
        await asks("getItem", id=conversation, item=item_id)
        await asks("deleteItem", id=conversation, item=item_id)
        await asks("getItem", id=conversation, item=item_id)
        await asks("deleteConversation", id=conversation)
        await asks("getConversation", id=conversation)
        assert (await asks("deleteResponse", id=one))["deleted"]
        await asks("deleteResponse", id=one)
        await asks("openResponseSocket")
        tagged = {operation.name for operation in OPERATIONS if operation.tag == "Responses"}
        assert asks.seen == tagged
