"""The tool of a first visit: harmless, and a person is asked before each call."""

from pathlib import Path
from typing import Any

import aiohttp
from gateways import until_read

from gateway.plugins.tools.demo_note import PLUGIN, Config, DemoNote
from gateway.testing import check_tool
from gateway.testing.local_gateway import LocalGateway

WORKFLOWS = Path(__file__).parents[3] / "workflows"
FIRST_VISIT = {"upstreams": [], "tools": {"demo_note": {}}, "workflows": {"folder": str(WORKFLOWS)}}


def test_demo_note_satisfies_check_tool() -> None:
    """With texts of any kind."""
    check_tool(PLUGIN, calls=[{"text": "Water the plants."}, {"text": "快 {{x}}\n"}])


async def test_demo_note_requires_approval_whatever_its_config_says() -> None:
    """Whatever the configuration says."""
    (spec,) = await DemoNote(Config()).list_tools()
    (other,) = await DemoNote(Config(requires_approval=False, untrusted=True)).list_tools()
    assert spec.requires_approval and other.requires_approval and other.untrusted and not spec.untrusted


async def test_demo_workflow_waits_for_a_decision_and_completes() -> None:
    """With no parameters: the run waits for a person, and goes on once one has decided."""
    async with LocalGateway(FIRST_VISIT) as made, aiohttp.ClientSession(made.base_url) as session:

        async def ask(method: str, path: str, body: Any = None, **headers: str) -> Any:
            async with session.request(method, path, json=body, headers=headers) as response:
                assert response.status in (200, 202), await response.text()
                return await response.json()

        listed = await ask("GET", "/workflows?category=demo")
        assert [one["name"] for one in listed["data"]] == ["first-approval"]
        begun = await ask("POST", "/workflows/first-approval/runs", {}, Prefer="respond-async")
        waiting = await until_read(
            lambda: ask("GET", "/context/approvals?status=pending"), lambda answer: bool(answer["data"])
        )
        (approval,) = waiting["data"]
        assert (approval["tool"], approval["arguments"]) == ("demo_note", {"text": "Hello from my first workflow."})
        await ask("POST", f"/context/approvals/{approval['id']}", {"decision": "approve"})
        run = await until_read(
            lambda: ask("GET", f"/context/runs/{begun['id']}"), lambda run: run["state"] == "completed"
        )
        assert run["result"].endswith("Noted: Hello from my first workflow.")


async def test_demo_model_calls_demo_note_in_a_chat_after_approval() -> None:
    """The visitor decides in the chat as well."""
    messages = [{"role": "user", "content": 'tool demo_note {"text": "Hi."}'}]
    body = {"model": "demo", "messages": messages}
    async with LocalGateway(FIRST_VISIT) as made, aiohttp.ClientSession(made.base_url) as session:
        path, headers = "/context/v1/chat/completions", {"X-Context-Approvals": "turn"}
        async with session.post(path, json=body, headers=headers) as response:
            turn = await response.json()
        (approval,) = turn["context"]["approvals"]
        assert approval["tool"] == "demo_note"
        said = turn["choices"][0]["message"]
        reply = f"approve {approval['id']} {approval['check_word']}"
        body["messages"] = [*messages, said, {"role": "user", "content": reply}]
        async with session.post(path, json=body, headers=headers) as response:
            done = await response.json()
        assert "Noted: Hi." in done["choices"][0]["message"]["content"]


async def test_demo_note_is_absent_when_upstreams_are_configured() -> None:
    """Nor is its workflow."""
    own = {"upstreams": [{"name": "up", "base_url": "http://127.0.0.1:9/v1"}], "workflows": FIRST_VISIT["workflows"]}
    async with LocalGateway(own) as made, aiohttp.ClientSession(made.base_url) as session:
        async with session.get("/workflows") as response:
            names = [one["name"] for one in (await response.json())["data"]]
        assert names == ["summarise", "table-report"]
        async with session.get("/context/tools") as response:
            assert (await response.json())["data"] == []
