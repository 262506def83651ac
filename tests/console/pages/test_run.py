"""The page of one run, as people open it, follow it, and act on it."""

import json
from pathlib import Path
from typing import Any

import pytest
from gateways import until_read

from gateway.console.visible_text import render_exact_json
from gateway.contracts.storage.journal import Change
from tests.console.browsing import Browser, Seen, key, served
from tests.console.stored_runs import TENANT, lost, ran, read_by_ann, stored
from tests.plugins.stores.records import approval, new, step

RUN = "/console/runs/run_1"
HOSTILE = '"><script>x()</script> {{ t }} \u202e\x1b[31m\u200b'


def finished(**facts: Any) -> Change:
    """A run with one call that has run."""
    done = {"tenant": TENANT, "round": 0, "state": "finished", "started_s": 101.0, "finished_s": 103.5, "result": "ok"}
    return new(ran(effects=True), steps=(step(0, **{**done, **facts}),))


async def opened(tmp_path: Path, browser: Browser, **arguments: Any) -> tuple[str, str]:
    """The ids of a run that waits for a person, and of its approval."""
    approval_id = await browser.asks("file_operations", **arguments)
    view = (await browser.api().get(f"/context/approvals/{approval_id}")).json
    return view["run_id"], approval_id


def regions(page: Seen) -> dict[str, str]:
    """The boxes with exact texts, by their names."""
    exact = (one for one in page.root.all("div") if "exact" in one.attributes.get("class", "").split())
    return {one.attributes["aria-label"]: one.raw_text for one in exact}


async def test_run_page_shows_every_step_from_request_to_answer(tmp_path: Path) -> None:
    """Why the call waited, who decided, what exactly ran, what it brought, what was answered."""
    async with served(tmp_path, key("ann"), key("bob", "context", "approve")) as browser:
        ann, bob = await browser.signed_in("ann"), await browser.signed_in("bob")
        run_id, approval_id = await opened(tmp_path, ann, operation="write", path="a.txt", content="one\ntwo")
        waiting = await bob.get(f"/console/runs/{run_id}")
        assert waiting.heading == f"Run {run_id}"
        for told in (
            "awaiting approval",
            "Model call round 1",
            "demo (127.0.0.1:",
            "A person decides",
            "Waits for a person",
            "requested",
        ):
            assert told in waiting.main
        assert regions(waiting) == {
            "Value of content, step 1": "onetwo",
            "Value of operation, step 1": '"write"',
            "Value of path, step 1": '"a.txt"',
        }
        assert f"/console/approvals/{approval_id}" in waiting.links
        after = await bob.submit(waiting, "Approve the call of file_operations, step 1")
        assert after.path.startswith(f"/console/runs/{run_id}?done=approved")
        await ann.until(approval_id)
        page = await until_read(lambda: bob.get(f"/console/runs/{run_id}"), lambda seen: "Answer" in seen.main)
        assert "approved by bob" in page.main and "after a wait of" in page.main
        assert "wrote 'a.txt'" in regions(page)["Result of step 1"]
        assert "wrote 'a.txt'" in regions(page)["Answer"]
        assert not page.root.all(hx_ext="sse") and "Cancel the run" not in page.main


async def test_call_can_be_rejected_from_the_run_page(tmp_path: Path) -> None:
    async with read_by_ann(tmp_path) as browser:
        run_id, approval_id = await opened(tmp_path, browser)
        page = await browser.get(f"/console/runs/{run_id}")
        after = await browser.submit(page, "Reject the call of file_operations, step 1")
        assert "Rejected." in after.main
        assert (await browser.until(approval_id, "rejected"))["decided_by"]


async def test_run_page_hides_buttons_from_keys_without_approve_scope(tmp_path: Path) -> None:
    async with served(tmp_path, key("ann", "context"), key("bob", "approve")) as browser:
        ann = await browser.signed_in("ann")
        run_id, approval_id = await opened(tmp_path, ann)
        page = await ann.get(f"/console/runs/{run_id}")
        assert "Approve" not in [one.text for one in page.root.all("button")]
        assert f"/console/approvals/{approval_id}" in page.links


async def test_run_page_with_truncated_arguments_links_to_the_full_approval(tmp_path: Path) -> None:
    """Of long arguments the page shows the beginning, so the decision is made where all of them stand."""
    async with read_by_ann(tmp_path) as browser:
        run_id, approval_id = await opened(tmp_path, browser, operation="write", path="a", content="x" * 100_000)
        page = await browser.get(f"/console/runs/{run_id}")
        assert len(page.body) < 50_000 and "more characters, SHA-256" in page.main
        assert "Approve" not in [one.text for one in page.root.all("button")]
        assert "Read all arguments and decide" in page.main
        assert f"/console/approvals/{approval_id}" in page.links


async def test_timeline_chart_has_a_table_of_its_figures(tmp_path: Path) -> None:
    """A bar for the wait, and one for the call; their length, begin and duration."""
    asked = approval(
        tenant=TENANT, step=0, state="done", created_s=100.0, decided_s=190.0, decided_by="bob", via="chat"
    )
    change = finished(approval_id="ap_1", started_s=190.0, finished_s=200.0)
    await stored(tmp_path, new(ran(updated_s=200.0), steps=change.steps, approvals=(asked,)))
    async with read_by_ann(tmp_path) as browser:
        page = await browser.get(RUN)
        bars = [
            (one.attributes["class"], one.attributes["x"], one.attributes["width"]) for one in page.root.all("rect")
        ]
        assert bars == [("bar approval", "0.0%", "90.0%"), ("bar tool", "90.0%", "10.0%")]
        (picture,) = page.root.all("svg", role="img")
        assert "2 min" not in picture.attributes["aria-label"] and "100 s" in picture.attributes["aria-label"]
        (figures,) = page.root.all("figure")
        rows = [one.text for one in figures.all("tbody")[0].all("tr")]
        assert rows == [
            "execute_command step 1 waiting for a person 1970-01-01 00:01:40 UTC 90 s",
            "execute_command step 1 tool runs 1970-01-01 00:03:10 UTC 10 s",
        ]
        assert "style=" not in page.html and "approved by bob" in page.main and "after a wait of 90 s" in page.main


async def test_hostile_texts_on_the_run_page_are_escaped_exactly(tmp_path: Path) -> None:
    """Arguments, results, reasons, errors: escaped, with what does not show written out."""
    hostile = {
        "arguments": json.dumps({HOSTILE: HOSTILE}),
        "result": HOSTILE,
        "reason": HOSTILE,
        "tool": HOSTILE,
        "late": HOSTILE,
        "tainted": True,
    }
    (call,) = finished(**hostile).steps
    failed = ran(state="failed", error_code="upstream_error", error=HOSTILE, conversation=HOSTILE)
    await stored(tmp_path, new(failed, steps=(call,)))
    async with read_by_ann(tmp_path) as browser:
        for place in (RUN, RUN + "/raw", RUN + "/timeline"):
            page = await browser.get(place)
            assert page.status == 200
            assert "<script>x" not in page.html and not set("\u202e\x1b\u200b") & set(page.html)
        page = await browser.get(RUN)
        assert "\\u{202e}\\u{1b}[31m\\u{200b}" in regions(page)["Result of step 1"]
        assert "Third parties wrote this, or may have" in page.main and "upstream_error" in page.main


async def test_built_in_assessor_reason_is_translated_into_chinese(tmp_path: Path) -> None:
    """In front of its own words, which are escaped as in English. A plugin's own reason stays alone."""
    steps = (
        *finished(rule="file.sensitive_path", reason=HOSTILE).steps,
        step(1, tenant=TENANT, rule="sensitive_path", reason="Own words."),
    )
    await stored(tmp_path, new(ran(effects=True), steps=steps))
    async with read_by_ann(tmp_path) as browser:
        english = await browser.get(RUN)
        assert "敏感" not in english.main and english.root.all("small") == []
        browser.language = "zh"
        page = await browser.get(RUN)
        first, second = (one.text for one in page.root.all("p") if one.attributes.get("class") == "why")
        assert "此操作会涉及敏感的路径。" in first and "<script>x()</script> {{ t }} \\u{202e}" in first
        assert "敏感" not in second and "Own words." in second
        assert "<script>x" not in page.html and not set("\u202e\x1b\u200b") & set(page.html)


async def test_long_result_is_cut_on_the_run_page_only(tmp_path: Path) -> None:
    """The page has its beginning; the JSON has all of it."""
    await stored(tmp_path, finished(result="\n".join(f"line {n}" for n in range(10_000))))
    async with read_by_ann(tmp_path) as browser:
        page = await browser.get(RUN)
        assert len(page.body) < 60_000
        assert "line 199" in page.main and "line 200" not in page.main
        assert "The beginning: 200 of 10 000 lines" in page.main
        raw = await browser.get(RUN + "/raw")
        (text,) = raw.root.all("pre")
        assert json.loads(text.raw_text) == (await browser.api().get("/context/runs/run_1")).json
        assert "line 9999" in text.raw_text


async def test_run_of_many_steps_is_paged(tmp_path: Path) -> None:
    facts = {"tenant": TENANT, "state": "finished", "result": "ok"}
    await stored(tmp_path, new(ran(), steps=tuple(step(n, round=n, **facts) for n in range(150))))
    async with read_by_ann(tmp_path) as browser:
        last = await browser.get(RUN)
        assert (len(last.root.all("li", class_="tool")), "step 150" in last.main, "of 150 steps" in last.main) == (
            100,
            True,
            True,
        )
        first = await browser.get(next(link for link in last.links if "from=" in link))
        assert "step 1, round 1" in first.main and "step 101," not in first.main
        assert "Steps" not in first.main  # without a time there is no picture
        assert "/console/runs/run_1?from=100" in first.links
        assert (await browser.get(RUN + "?from=x")).status == 200


async def test_chart_of_a_partial_run_states_its_step_range(tmp_path: Path) -> None:
    """The picture names its steps and the time at which its axis begins. That of a whole run says nothing."""
    facts = {"tenant": TENANT, "state": "finished", "result": "ok"}
    steps = tuple(step(n, round=n, started_s=100.0 + n, finished_s=100.5 + n, **facts) for n in range(150))
    await stored(tmp_path, new(ran(created_s=100.0, updated_s=260.0), steps=steps))
    await stored(
        tmp_path, new(ran("run_2"), steps=(step(0, run_id="run_2", started_s=100.0, finished_s=101.0, **facts),))
    )
    async with read_by_ann(tmp_path) as browser:
        last = await browser.get(RUN)
        assert "Steps 51 to 150 of 150. The axis begins 50 s after the run did." in last.main
        assert "Steps 1 to 100 of 150. The axis begins 0 ms after" in (await browser.get(RUN + "?from=0")).main
        whole = await browser.get("/console/runs/run_2")
        assert "Where the time went" in whole.main and "The axis begins" not in whole.main


async def test_run_is_cancelled_on_its_page_once(tmp_path: Path) -> None:
    """Once; of a run that has ended the page says so."""
    async with read_by_ann(tmp_path) as browser:
        run_id, approval_id = await opened(tmp_path, browser)
        page = await browser.get(f"/console/runs/{run_id}")
        after = await browser.submit(page, "Cancel the run now")
        assert "The run is cancelled." in after.main and "cancelled" in after.main
        assert (await browser.until(approval_id, "cancelled"))["state"] == "cancelled"
    await stored(tmp_path, finished())
    async with read_by_ann(tmp_path) as browser:
        token = (await browser.get(RUN)).token
        late = await browser.post(RUN + "/cancel", {"token": token})
        assert (late.status, "completed already" in late.problem, late.heading) == (409, True, "Run run_1")


async def test_unknown_outcomes_are_settled(tmp_path: Path) -> None:
    """One after the other: a result goes to the model, by the word of the person."""
    await stored(tmp_path, lost())
    async with served(tmp_path, key("ann", "context"), key("bob", "approve")) as browser:
        ann, bob = await browser.signed_in("ann"), await browser.signed_in("bob")
        page = await bob.get(RUN)
        assert "Until then the run does not go on." in page.main
        assert "It was done" not in (await ann.get(RUN)).main
        refused = await ann.post(RUN + "/settle", {"token": (await ann.get(RUN)).token, "step": "0", "as": "done"})
        assert refused.status == 403
        fields = {"token": page.token, "step": "0", "result": "two files\r\nare there", "trusted": "on"}
        after = await bob.post(RUN + "/settle", {**fields, "as": "done"})
        assert (after.status, after.path, after.problem) == (200, "/console/runs/run_1?done=settled", ""), after.main
        assert "Recorded." in after.main
        steps = (await bob.api().get("/context/runs/run_1")).json["steps"]
        assert [(one["state"], one["result"], one["tainted"]) for one in steps] == [
            ("finished", "two files\nare there", False),
            ("unknown", None, False),
        ]
        again = await bob.post(RUN + "/settle", {**fields, "as": "failed"})
        assert again.status == 409 and again.problem and again.heading == "Run run_1"
        assert len(again.root.all("textarea")) == 1


@pytest.mark.parametrize(
    "fields", [{"step": "0"}, {"as": "done"}, {"step": "x", "as": "done"}, {"step": "0", "as": "ok"}]
)
async def test_incomplete_settle_form_changes_nothing(tmp_path: Path, fields: dict[str, str]) -> None:
    await stored(tmp_path, lost())
    async with read_by_ann(tmp_path) as browser:
        token = (await browser.get(RUN)).token
        assert (await browser.post(RUN + "/settle", {"token": token, **fields})).status in (400, 422)
        assert (await browser.api().get("/context/runs/run_1")).json["state"] == "unknown"


async def test_resume_without_a_client_credential_is_refused_with_a_reason(tmp_path: Path) -> None:
    """It needs its client's own key, which is not stored."""
    request = json.dumps({"credential": True, "messages": []}).encode()
    await stored(tmp_path, new(ran(state="awaiting_client", request=request)))
    async with read_by_ann(tmp_path) as browser:
        page = await browser.get(RUN)
        after = await browser.submit(page, "Resume")
        assert after.status == 409 and "own key" in after.problem
        assert after.heading == "Run run_1"


async def test_unchanged_run_fragment_returns_204(tmp_path: Path) -> None:
    async with read_by_ann(tmp_path) as browser:
        run_id, _ = await opened(tmp_path, browser)
        page = await browser.get(f"/console/runs/{run_id}")
        (part,) = page.root.all("article", id="run")
        place = part.attributes["hx-get"]
        assert (await browser.get(place)).status == 204
        await browser.submit(page, "Reject the call of file_operations, step 1")
        changed = await until_read(lambda: browser.get(place), lambda seen: "hx-get" not in seen.html)
        assert changed.status == 200 and "<html" not in changed.html and "rejected by" in changed.html
        assert 'hx-swap-oob="innerHTML"' in changed.html


async def test_run_event_stream_ends_with_the_run(tmp_path: Path) -> None:
    async with read_by_ann(tmp_path) as browser:
        run_id, _ = await opened(tmp_path, browser)
        page = await browser.get(f"/console/runs/{run_id}")
        (connecting,) = page.root.all(hx_ext="sse")
        async with browser.listening(connecting.attributes["sse-connect"]) as news:
            await news.next("changed")
            await browser.submit(page, "Reject the call of file_operations, step 1")
            await news.next("over")
            assert await news.any() is None


@pytest.mark.parametrize("place", ["", "/raw", "/timeline", "/live"])
async def test_runs_of_another_tenant_are_not_found(tmp_path: Path, place: str) -> None:
    """Neither do runs that nobody ever began; a key of operators sees none."""
    await stored(tmp_path, finished())
    keys = (key("ann"), key("eve", tenant="others"), key("op", "admin"))
    async with served(tmp_path, *keys) as browser:
        eve = await browser.signed_in("eve")
        assert (await eve.get(RUN + place)).status == 404
        assert (await eve.get("/console/runs/run_9" + place)).status == 404
        assert (await (await browser.signed_in("op")).get(RUN + place)).status == 403


@pytest.mark.parametrize("action", ["cancel", "resume", "settle"])
async def test_runs_of_another_tenant_cannot_be_changed(tmp_path: Path, action: str) -> None:
    await stored(tmp_path, lost())
    async with served(tmp_path, key("ann"), key("eve", tenant="others")) as browser:
        eve = await browser.signed_in("eve")
        token = (await eve.get("/console/runs")).token
        assert (await eve.post(f"{RUN}/{action}", {"token": token, "step": "0", "as": "done"})).status == 404
        ann = await browser.signed_in("ann")
        assert (await ann.api().get("/context/runs/run_1")).json["state"] == "unknown"


async def test_a_run_of_a_workflow_has_its_name_and_result(tmp_path: Path) -> None:
    workflow = {"definition": {"name": "report", "steps": [{"name": "rows", "tool": "execute_command"}]}}
    asked = json.dumps({"workflow": workflow}).encode()
    answer = json.dumps({"content": "Three rows.", "usage": {"prompt_tokens": 12_000, "completion_tokens": 5}}).encode()
    (call,) = finished().steps
    ended = ran(kind="workflow", workflow="report", request=asked, answer=answer)
    await stored(tmp_path, new(ended, steps=(call,)))
    async with read_by_ann(tmp_path) as browser:
        page = await browser.get(RUN)
        assert "workflow report" in page.main and "execute_command rows" in page.main
        assert regions(page)["Answer"] == "Three rows."
        assert "12 000 in, 5 out" in page.main
        assert "/console/workflows/report" in page.links


async def test_a_run_without_a_model_has_no_tokens(tmp_path: Path) -> None:
    answer = json.dumps({"content": "Done.", "usage": {"prompt_tokens": 0, "completion_tokens": 0}}).encode()
    (call,) = finished().steps
    await stored(tmp_path, new(ran(answer=answer), steps=(call,)))
    async with read_by_ann(tmp_path) as browser:
        assert "Tokens" not in (await browser.get(RUN)).main


def test_exact_json_escapes_invisible_characters_only() -> None:
    """It is the same value, with an escape for each character that does not show."""
    value = {"a\u202eb": '\x1b \u200b \U000e0041 \ufeff \xa0 e\u0301 <b> \\ " 中文 é', "n": [1, 2.5, None]}
    text = render_exact_json(value)
    assert json.loads(text) == value
    assert "中文 é" in text and "\\u202e" in text and "\\udb40\\udc41" in text
    assert not set("\u202e\x1b\u200b\U000e0041\ufeff\xa0\u0301") & set(text)
