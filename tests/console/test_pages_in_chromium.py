"""Every page of the console in a real browser: accessible in light and dark, at a desk and on a phone; its flows."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from gateways import config, until_read
from playwright.async_api import Page, expect

from tests.console.browser import BROWSER, DESKTOP, PHONE, Scheme, View, Visit, axe, fits, picture
from tests.mcp.misbehaving import command
from tests.support.gateway_process import GatewayProcess

pytestmark = BROWSER
Json = dict[str, Any]

WORKFLOW = """\
name: tidy
category: files
description: Writes a note and sums up what it holds.
parameters:
  text: {type: string, description: What the note says., default: Call Ann}
  lines: {type: integer, default: 3}
steps:
  - {name: write, tool: file_operations, with: {operation: write, path: note.txt, content: "{{params.text}}"}}
"""


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    for name in ("files", "workflows"):
        (tmp_path / name).mkdir()
    (tmp_path / "files" / "notes.txt").write_text("one\ntwo\n")
    (tmp_path / "workflows" / "tidy.yaml").write_text(WORKFLOW)
    program, *rest = command("ok")
    sections: Json = {
        "tools": {"file_operations": {"roots": [str(tmp_path / "files")], "write": True}},
        "workflows": {"folder": str(tmp_path / "workflows")},
        "mcp": {"servers": {"clock": {"command": program, "args": rest, "description": "Tells the time"}}},
        "store": f"sqlite:///{tmp_path}/gateway.db",
        "usage": {"enabled": True},
        "limits": {
            "tenants": {"local": {"requests_per_minute": 10, "concurrent": 4, "tokens_per_month": 100_000}},
            "models": {"demo": {"requests_per_minute": 3, "tokens_per_minute": 20_000, "soft": True}},
        },
    }
    async with GatewayProcess(config(None, **sections)) as process:
        yield process


async def api(gateway: GatewayProcess, path: str, body: Json | None = None, **headers: str) -> Json:
    async with aiohttp.ClientSession(gateway.base_url) as client:
        method = "GET" if body is None else "POST"
        async with client.request(method, path, json=body, headers=headers) as response:
            found: Json = await response.json()
            assert response.status < 300, found
            return found


async def chat(gateway: GatewayProcess, text: str, **headers: str) -> Json:
    body = {"model": "demo", "messages": [{"role": "user", "content": text}]}
    return await api(gateway, "/context/v1/chat/completions", body, **headers)


async def furnished(gateway: GatewayProcess) -> dict[str, str]:
    """A gateway that has done something: the addresses of its pages, by the names of their pictures."""
    write = {"operation": "write", "path": "notes.txt", "content": "one\nTWO\nthree\n"}
    await chat(gateway, 'steps 3 tool file_operations {"operation": "read", "path": "notes.txt"}')
    await chat(gateway, "Remember that I like tea.", **{"X-Context-User": "ann"})
    await chat(gateway, f"tool file_operations {json.dumps(write)}", **{"X-Context-Conversation": "letters"})
    (approval,) = (await api(gateway, "/context/approvals"))["data"]
    runs = (await api(gateway, "/context/runs"))["data"]
    done = next(run["id"] for run in runs if run["state"] == "completed")
    await until_read(lambda: api(gateway, "/mcp/services/clock"), lambda service: service["state"] == "running")
    return {
        "inbox": "",
        "approval": f"/approvals/{approval['id']}?edit=1",
        "runs": "/runs",
        "run": f"/runs/{done}",
        "run-raw": f"/runs/{done}/raw",
        "run-waiting": f"/runs/{approval['run_id']}",
        "workflows": "/workflows",
        "workflow": "/workflows/tidy",
        "playground": "/playground",
        "tools": "/tools",
        "service": "/services/clock",
        "service-new": "/tools/new-service",
        "prompts": "/prompts",
        "prompt": "/prompts/default",
        "memories": "/memories?user=ann",
        "remembered": "/remembered",
        "keys": "/keys",
        "key-new": "/keys/new",
        "usage": "/usage",
        "limits": "/limits",
        "status": "/status",
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_console_pages_pass_accessibility_and_layout_checks(
    gateway: GatewayProcess, visit: Visit, view: View, scheme: Scheme
) -> None:
    """No fault of any severity, nothing wider than the window, nothing from elsewhere, no violation of the policy."""
    pages = await furnished(gateway)
    suffix = {(False, "light"): "", (True, "dark"): "-phone"}.get((view.mobile, scheme))
    async with visit("/console", view=view, scheme=scheme) as page:
        for name, path in pages.items():
            await page.goto(f"/console{path}")
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            if name == "approval":
                await expect(page.get_by_role("heading", name="What it changes")).to_be_visible()
            await _checked(page, name)
            if suffix is not None:
                await picture(page, name + suffix)


async def _checked(page: Page, name: str) -> None:
    try:
        await axe(page)
        await fits(page)
    except AssertionError as fault:
        raise AssertionError(f"{name}: {fault}") from None


async def test_console_pages_in_chinese_pass_accessibility_checks(gateway: GatewayProcess, visit: Visit) -> None:
    """Accessible as well; the pages say which language they are in."""
    pages = await furnished(gateway)
    async with visit("/console", language="zh") as page:
        for name, path in pages.items():
            await page.goto(f"/console{path}")
            assert await page.evaluate("document.documentElement.lang") == "zh-Hans"
            await _checked(page, name)
            if name in ("inbox", "run"):
                await picture(page, f"{name}-chinese")


async def test_run_page_updates_live_from_waiting_to_completed(gateway: GatewayProcess, visit: Visit) -> None:
    """It waits, goes on and ends before its reader's eyes."""
    write = {"operation": "write", "path": "notes.txt", "content": "x"}
    await chat(gateway, f"tool file_operations {json.dumps(write)}")
    (approval,) = (await api(gateway, "/context/approvals"))["data"]
    async with visit(f"/console/runs/{approval['run_id']}") as page:
        await expect(page.locator("h1 .badge, .head .badge").first).to_have_text("awaiting approval")
        await api(gateway, f"/context/approvals/{approval['id']}", {"decision": "approve"})
        await expect(page.locator("h1 .badge, .head .badge").first).to_have_text("completed")
        await expect(page.get_by_role("heading", name="Answer")).to_be_visible()


async def test_limits_page_updates_live_until_stopped(gateway: GatewayProcess, visit: Visit) -> None:
    """The table follows what happens, and the keyboard stays where it is; until its reader stops that."""
    async with visit("/console/limits") as page:
        first = page.get_by_role("row").nth(1)
        await expect(first).to_contain_text("0 of 10")
        await page.get_by_role("region", name="Limits").focus()
        await chat(gateway, "Say hello")
        await expect(first).to_contain_text("1 of 10")
        await expect(page.get_by_role("region", name="Limits")).to_be_focused()
        await page.get_by_role("link", name="Stop that").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("link", name="Keep it up to date")).to_be_visible()
        assert await page.locator("[hx-get]").count() == 0


async def test_workflow_can_be_started_and_approved_in_the_console(
    gateway: GatewayProcess, visit: Visit, tmp_path: Path
) -> None:
    """The way of a first visitor: workflows, the form, start, the run, the inbox, approve, done."""
    async with visit("/console/workflows") as page:
        await page.get_by_role("link", name="tidy").click()
        await expect(page.get_by_label("text")).to_have_value("Call Ann")
        await page.get_by_label("text").fill("Call Bob")
        await page.get_by_role("button", name="Start").click()
        await page.get_by_role("link", name="Inbox").click()
        await page.get_by_role("button", name="Approve the call of file_operations").click()
        await page.get_by_role("link", name="Runs").click()
        await page.get_by_role("link", name="run_").first.click()
        await expect(page.locator(".head .badge").first).to_have_text("completed")
    assert (tmp_path / "files" / "note.txt").read_text() == "Call Bob"


async def test_service_can_be_added_from_the_form(gateway: GatewayProcess, visit: Visit) -> None:
    """From a form; what does not fit is named on it; then its tools are listed."""
    program, *rest = command("ok")
    async with visit("/console/tools/new-service", expected=["status of 422"]) as page:
        await page.locator("#name").fill("second")
        await page.get_by_label("Program").fill(program)
        await page.get_by_label("Environment").fill("{TOKEN")
        await page.get_by_role("button", name="Add and start it").click()
        await expect(page.get_by_role("alert")).to_contain_text("this is not JSON")
        await axe(page)
        await expect(page.get_by_label("Program")).to_have_value(program)
        await page.get_by_label("Environment").fill("")
        await page.get_by_label("Arguments").fill("\n".join(rest))
        await page.get_by_role("button", name="Add and start it").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("second")
    await until_read(lambda: api(gateway, "/mcp/services/second"), lambda service: service["state"] == "running")


async def test_playground_streams_both_lanes_with_an_explanation(gateway: GatewayProcess, visit: Visit) -> None:
    """Both lanes side by side as they stream, with what the gateway makes of the message and the gate of a call."""
    async with visit("/console/playground") as page:
        await page.get_by_label("Message").fill("Say hello")
        await page.get_by_text("Ask the risk gate about a call").click()
        await page.get_by_label("Tool").select_option("file_operations")
        await page.get_by_label("Parameters, as JSON").fill('{"operation": "write", "path": "a", "content": "b"}')
        await page.get_by_role("button", name="Send").click()
        for lane in ("Passthrough", "Context"):
            await expect(page.get_by_role("region", name=lane)).to_contain_text("Hello! This is the demo model")
            await expect(page.get_by_role("region", name=lane)).to_contain_text("tokens")
        explained = page.get_by_role("region", name="What the gateway makes of it")
        await expect(explained).to_contain_text("asks a person")
        await expect(explained).to_contain_text("prompt_enhancer")
        await axe(page)
        await picture(page, "playground-answered")


async def test_playground_without_scripts_shows_both_responses(visit: Visit) -> None:
    """The form brings both answers whole."""
    async with visit("/console/playground", scripts=False) as page:
        await page.get_by_label("Message").fill("Say hello")
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_text("Hello! This is the demo model")).to_have_count(2)


@pytest.mark.parametrize(("system", "other"), [("light", "Dark"), ("dark", "Light")])
async def test_chosen_colour_theme_overrides_the_system_theme(visit: Visit, system: Scheme, other: str) -> None:
    """Against those of the system, on the next page from its first drawing on; and back."""
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    async with visit("/console/runs", scheme=system) as page:
        usual = await page.evaluate(ground)
        await page.get_by_role("button", name=other, exact=True).click()
        await expect(page.get_by_role("button", name=other, exact=True)).to_have_attribute("aria-pressed", "true")
        chosen = await page.evaluate(ground)
        assert chosen != usual
        await axe(page)
        await page.goto("/console/usage")
        assert await page.evaluate(ground) == chosen
        await page.get_by_role("button", name="As the system").click()
        await expect(page.locator("html")).not_to_have_attribute("data-theme", re.compile("."))
        assert await page.evaluate(ground) == usual
