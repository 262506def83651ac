"""The pages of workflows: what a reader sees, how a run starts, and what becomes of a form that does not fit."""

import json
from pathlib import Path

from gateways import until_read

from tests.console.browsing import Browser, key, served

NOTE = {
    "name": "write-note",
    "category": "files & <b>more</b>",
    "description": "Writes a note. <script>alert(1)</script>\u202e",
    "parameters": {
        "path": {"default": "note.txt", "description": "Name of the file."},
        "text": {"required": True},
        "times": {"type": "integer", "default": 1},
        "mode": {"enum": ["short", "long"]},
    },
    "steps": [
        {
            "name": "write",
            "tool": "file_operations",
            "with": {"operation": "write", "path": "{{params.path}}", "content": "{{params.text}}"},
        },
        {"name": "answer", "prompt": "Written."},
    ],
}
SAY = {
    "name": "say",
    "category": "writing",
    "description": "Says it.",
    "parameters": {"text": {"default": "hello"}},
    "steps": [{"name": "said", "prompt": "{{params.text}}"}],
}


def with_workflows(folder: Path) -> Path:
    """The folder, with two workflows in it."""
    (folder / "workflows").mkdir()
    for workflow in (NOTE, SAY):
        (folder / "workflows" / f"{workflow['name']}.yaml").write_text(json.dumps(workflow))
    return folder


async def runs_of(browser: Browser, workflow: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = (await browser.api().get(f"/context/runs?workflow={workflow}")).json["data"]
    return found


async def test_workflows_are_listed_and_filtered_by_category(tmp_path: Path) -> None:
    async with served(with_workflows(tmp_path), key("ann", "context")) as browser:
        ann = await browser.signed_in("ann")
        page = await ann.get("/console/workflows")
        assert [one.text for one in page.root.all("main")[0].all("h2")] == ["files & <b>more</b>", "writing"]
        assert [heading.text for heading in page.root.all("h3")] == ["write-note", "say"]
        assert "<script>alert" not in page.html and "\\u{202e}" in page.main
        (place,) = (link for link in page.links if "category=files" in link)
        only = await ann.get(place)
        assert [heading.text for heading in only.root.all("h3")] == ["write-note"]
        chosen = [link.text for link in only.root.all("a") if link.attributes.get("href") == place]
        assert chosen == ["files & <b>more</b> 1"]


async def test_empty_workflows_page_names_the_setting(tmp_path: Path) -> None:
    async with served(tmp_path, key("ann", "context")) as browser:
        page = await (await browser.signed_in("ann")).get("/console/workflows")
        assert "There is no workflow here." in page.main and "'workflows'" in page.main


async def test_a_run_starts_with_the_values_of_the_form(tmp_path: Path) -> None:
    async with served(with_workflows(tmp_path), key("ann", "context", "approve")) as browser:
        ann = await browser.signed_in("ann")
        page = await ann.get("/console/workflows/write-note")
        assert page.heading == "write-note"
        assert "write calls the tool file_operations" in page.main and "answer writes a text" in page.main
        assert "It has not been started yet" in page.main
        form = page.form("Start the run")
        assert dict(form.fields)["field.path"] == "note.txt" and dict(form.fields)["field.times"] == "1"
        assert page.root.all("textarea", name="field.text")  # an `<input>` would drop line ends
        text = "first line\n  second line "
        entered = {"field.text": text, "conversation": "conv-1"}
        answer = await ann.submit(page, "Start the run", entered, follow=False)
        (run,) = await runs_of(ann, "write-note")
        assert (answer.status, answer.location) == (303, f"/console/runs/{run['id']}")
        assert (run["kind"], run["conversation"], run["caller"]) == ("workflow", "conv-1", "ann")
        pending = "/context/approvals?status=pending"
        seen = await until_read(lambda: ann.api().get(pending), lambda seen: seen.json["data"])
        (approval,) = seen.json["data"]
        assert approval["arguments"] == {"operation": "write", "path": "note.txt", "content": text}
        again = await ann.get("/console/workflows/write-note")
        assert str(run["id"]) in again.main and "conv-1" in again.main
        assert f"/console/runs/{run['id']}" in again.links


async def test_resubmitted_workflow_form_starts_only_one_run(tmp_path: Path) -> None:
    async with served(with_workflows(tmp_path), key("ann", "context")) as browser:
        ann = await browser.signed_in("ann")
        page = await ann.get("/console/workflows/say")
        first = await ann.submit(page, "Start the run", follow=False)
        twice = await ann.submit(page, "Start the run", follow=False)
        edited = await ann.submit(page, "Start the run", {"field.text": "other"}, follow=False)
        fresh = await ann.submit(await ann.get("/console/workflows/say"), "Start the run", follow=False)
        assert first.location == twice.location
        assert len({first.location, edited.location, fresh.location}) == 3
        assert len(await runs_of(ann, "say")) == 3


async def test_cleared_text_field_overrides_its_default_with_empty_text(tmp_path: Path) -> None:
    async with served(with_workflows(tmp_path), key("ann", "context")) as browser:
        ann = await browser.signed_in("ann")
        page = await ann.get("/console/workflows/say")
        answer = await ann.submit(page, "Start the run", {"field.text": ""}, follow=False)
        path = answer.location.replace("/console/", "/context/")
        run = await until_read(lambda: ann.api().get(path), lambda seen: seen.json["state"] == "completed")
        assert run.json["result"] == ""


async def test_invalid_workflow_form_keeps_its_input(tmp_path: Path) -> None:
    async with served(with_workflows(tmp_path), key("ann", "context")) as browser:
        ann = await browser.signed_in("ann")
        page = await ann.get("/console/workflows/write-note")
        entered = {"field.text": "kept <b>", "field.times": "many", "conversation": "conv-1"}
        refused = await ann.submit(page, "Start the run", entered)
        assert refused.status == 422 and refused.problem.startswith("times: ")
        kept = dict(refused.form("Start the run").fields)
        assert (kept["field.text"], kept["field.times"], kept["conversation"]) == ("kept <b>", "many", "conv-1")
        mode = await ann.post(page.path, {**kept, "field.times": "1", "field.mode": "sideways"})
        assert (mode.status, mode.problem) == (422, "mode: choose one of the options")
        # What only the API can check is its to refuse.
        far = await ann.submit(refused, "Start the run", {"field.times": "1", "conversation": "c" * 300})
        assert far.status == 400 and "conversation" in far.problem
        assert await runs_of(ann, "write-note") == []


async def test_form_error_is_in_the_language_of_the_user(tmp_path: Path) -> None:
    async with served(with_workflows(tmp_path), key("ann", "context")) as browser:
        ann = await browser.signed_in("ann")
        ann.language = "zh"
        page = await ann.get("/console/workflows/write-note")
        fields = dict(page.form("开始运行").fields)
        assert (await ann.post(page.path, {**fields, "field.mode": "x"})).problem == "mode: 请从选项中选择"


async def test_workflow_page_lists_the_latest_runs_and_links_the_rest(tmp_path: Path) -> None:
    async with served(with_workflows(tmp_path), key("ann", "context")) as browser:
        ann = await browser.signed_in("ann")
        for _ in range(11):
            assert (await ann.api().post("/workflows/say/runs", {})).status == 200
        page = await ann.get("/console/workflows/say")
        assert len([link for link in page.links if link.startswith("/console/runs/")]) == 10
        assert "/console/runs?kind=workflow&workflow=say" in page.links


async def test_unknown_or_forbidden_workflow_page_is_refused(tmp_path: Path) -> None:
    async with served(with_workflows(tmp_path), key("ann", "context"), key("bob", "approve")) as browser:
        assert (await (await browser.signed_in("ann")).get("/console/workflows/none")).status == 404
        assert (await (await browser.signed_in("bob")).get("/console/workflows/say")).status == 403
