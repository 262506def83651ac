"""The playground over HTTP: what each lane answers, what it costs, what goes wrong, and who may send what."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream
from tests.console.browsing import Browser, key, served

PAGE = "/console/playground"


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    keys = (key("ann"), key("con", "context"), key("app", "approve"))
    async with served(tmp_path, *keys) as made:
        yield made


async def lines(browser: Browser, lane: str, **fields: str) -> tuple[str, str]:
    """The text of a lane's answer, and the HTML of its facts."""
    token = (await browser.get(PAGE)).token
    seen = await browser.post(f"{PAGE}/{lane}", {"token": token, "model": "demo", **fields})
    assert (seen.status, seen.headers["Content-Type"]) == (200, "application/jsonl; charset=utf-8")
    found = [json.loads(line) for line in seen.body.splitlines()]
    return "".join(one.get("text", "") for one in found), found[-1]["end"]


async def test_playground_without_scripts_shows_both_lanes_and_an_explanation(browser: Browser) -> None:
    """On one page where nothing runs in the browser; the form holds what was sent."""
    ann = await browser.signed_in("ann")
    page = await ann.submit(await ann.get(PAGE), "Send", {"message": "Say <b>hello</b>"})
    assert page.main.count('You said: "Say <b>hello</b>"') == 2
    for text in ("What the gateway makes of it", "prompt_enhancer", "tokens"):
        assert text in page.main, text
    assert "&lt;b&gt;hello" in page.html and "<b>hello" not in page.html


async def test_playground_streams_text_followed_by_time_and_tokens(browser: Browser) -> None:
    """With the time and the tokens at its end; a text alone has no run to link to."""
    ann = await browser.signed_in("ann")
    for lane in ("passthrough", "context"):
        text, facts = await lines(ann, lane, message="Say hello")
        assert text.startswith("Hello! This is the demo model")
        assert "first text after" in facts and "tokens" in facts and "/console/runs/" not in facts


async def test_playground_tool_call_creates_a_run_and_waits_for_approval(browser: Browser) -> None:
    """The playground is no way past the gate."""
    ann = await browser.signed_in("ann")
    call = 'tool file_operations {"operation": "write", "path": "a", "content": "b"}'
    text, facts = await lines(ann, "context", message=call)
    assert "waits for your approval" in text and "/console/runs/run_" in facts
    assert not (ann.folder / "files" / "a").exists()
    assert "file_operations" in (await ann.get("/console")).main


async def test_playground_reports_the_verdict_of_the_gate_on_a_call(browser: Browser) -> None:
    """Its verdict and the rule; wrong parameters are named."""
    ann = await browser.signed_in("ann")
    page = await ann.get(PAGE)
    wish = {"tool": "file_operations", "parameters": '{"operation": "write", "path": "a", "content": "b"}'}
    assert "asks a person" in (await ann.submit(page, "Send", wish)).main
    wish["parameters"] = '{"operation": "exists", "path": "a"}'
    assert "runs without asking" in (await ann.submit(page, "Send", wish)).main
    ann.language = "zh"
    answer = (await ann.submit(await ann.get(PAGE), "发送", wish)).main
    assert "此操作不会改变任何内容。 A exists changes nothing. file.reading" in answer
    ann.language = "en"
    for wrong, problem in (("{", "Parameters, as JSON"), ("[]", "not a JSON object")):
        assert problem in (await ann.submit(page, "Send", {**wish, "parameters": wrong})).problem


async def test_playground_offers_only_the_lanes_the_key_may_use(browser: Browser) -> None:
    """A key for the context lane has no passthrough; one that only approves has no playground."""
    con = await browser.signed_in("con")
    page = await con.get(PAGE)
    assert "Passthrough" not in page.main and "Context" in page.main
    for lane in ("passthrough", "explanations", "nothing"):
        assert (await con.post(f"{PAGE}/{lane}", {"token": page.token, "message": "x"})).status == 404
    app = await browser.signed_in("app")
    assert (await app.get(PAGE)).status == 403


@pytest.mark.parametrize(
    ("status", "body", "shown"),
    [
        (429, b'{"error": {"message": "slow <down>"}}', "429: slow &lt;down&gt;"),
        (500, b"<h1>broken</h1>", "500: &lt;h1&gt;broken&lt;/h1&gt;"),
        (418, b'{"error": "no object"}', "418: no object"),
    ],
)
async def test_playground_shows_upstream_errors_with_their_status(
    tmp_path: Path, status: int, body: bytes, shown: str
) -> None:
    """With its status, whatever form its error has; the person's key for it goes nowhere else."""
    async with FakeUpstream(serve(build_answer(status, body))) as fake:
        upstreams = [{"name": "up", "base_url": fake.base_url}]
        async with served(tmp_path, upstreams=upstreams) as browser:
            _, facts = await lines(browser, "passthrough", message="hi", upstream_key="sk-mine")
            assert shown in facts and "first text" not in facts
            bearing = [request for request in fake.requests if b"sk-mine" in request.raw_head]
            assert [request.target for request in bearing] == [b"/v1/chat/completions"]
