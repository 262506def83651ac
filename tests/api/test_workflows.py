"""The pages of workflows: what there is, what each takes, and how a run of one is begun and told."""

import asyncio

import pytest
from gateways import until

from .workflow_pages import ALL, bureau


async def test_workflows_are_listed() -> None:
    """In the order of their names, all or those of a category."""
    async with bureau() as counter:
        status, answer, _ = await counter.ask("GET", "/workflows")
        assert (status, answer["object"]) == (200, "list")
        assert [view["name"] for view in answer["data"]] == ["break", "deploy", "translate"]
        assert answer["data"][2] == {
            "name": "translate",
            "object": "workflow",
            "category": "writing",
            "description": "Translates a text.",
        }
        _, answer, _ = await counter.ask("GET", "/workflows?category=operations")
        assert [view["name"] for view in answer["data"]] == ["deploy"]
        assert (await counter.ask("HEAD", "/workflows"))[0] == 200
        counter.bureau.workflows.clear()
        assert (await counter.ask("GET", "/workflows"))[1]["data"] == []


async def test_workflows_come_in_pages() -> None:
    """Also those of a category; what is no workflow of the list is no place to begin."""
    async with bureau() as counter:
        _, first, _ = await counter.ask("GET", "/workflows?limit=2")
        assert ([view["name"] for view in first["data"]], first["next"]) == (["break", "deploy"], "deploy")
        _, second, _ = await counter.ask("GET", "/workflows?limit=2&after=deploy")
        assert ([view["name"] for view in second["data"]], second["next"]) == (["translate"], None)
        assert (await counter.ask("GET", "/workflows?category=writing&limit=1"))[1]["next"] is None
        for query in ("after=nope", "category=writing&after=deploy", "limit=0", "limit=201"):
            status, answer, _ = await counter.ask("GET", f"/workflows?{query}")
            assert (status, answer["error"]["code"]) == (400, "invalid_field")


async def test_workflow_categories_group_workflows() -> None:
    """For the frontend's selector (design.md, decision 5); a workflow without one is `general`."""
    async with bureau() as counter:
        status, answer, _ = await counter.ask("GET", "/workflows/categories")
        assert status == 200
        assert [(view["name"], view["workflows"]) for view in answer["data"]] == [
            ("general", ["break"]),
            ("operations", ["deploy"]),
            ("writing", ["translate"]),
        ]


async def test_workflow_page_shows_schema_and_steps() -> None:
    """The JSON Schema of its parameters, and its steps without their texts."""
    async with bureau() as counter:
        status, view, _ = await counter.ask("GET", "/workflows/translate")
        assert status == 200 and view["parameters"] == ALL["translate"].build_schema()
        assert view["parameters"]["properties"]["language"] == {
            "type": "string",
            "title": "Language",
            "default": "English",
            "enum": ["English", "German"],
        }
        assert view["steps"] == [{"name": "said", "kind": "model"}]
        _, view, _ = await counter.ask("GET", "/workflows/deploy")
        assert view["steps"] == [{"name": "put", "kind": "tool", "tool": "risky"}, {"name": "end", "kind": "prompt"}]


async def test_workflow_run_returns_its_result() -> None:
    """Sync: 200 with the finished run; defaults are put in."""
    async with bureau() as counter:
        status, run, headers = await counter.run("translate", {"text": "Hallo {{config.keys}}"})
        assert (status, run["state"], run["kind"], run["workflow"]) == (200, "completed", "workflow", "translate")
        assert run["result"] == run["answer"]["content"] == "[Into English: Hallo {{config.keys}}]"
        assert (headers["X-Context-Run-Id"], run["id"]) == ("run_1", "run_1") and "Location" not in headers
        (wanted,) = counter.bureau.wanted
        assert wanted.parameters == {"text": "Hallo {{config.keys}}", "language": "English"}
        assert (wanted.caller.name, wanted.conversation, wanted.detached) == ("ann", None, False)


async def test_workflow_run_joins_the_requested_conversation() -> None:
    """For its memory and its approvals."""
    async with bureau() as counter:
        body = {"parameters": {"text": "x"}, "conversation": "c1"}
        _, run, _ = await counter.ask("POST", "/workflows/translate/runs", body)
        assert run["conversation"] == counter.bureau.wanted[0].conversation == "c1"
        for wrong in ("", "a\nb", "x" * 257, 3):
            body = {"parameters": {"text": "x"}, "conversation": wrong}
            status, answer, _ = await counter.ask("POST", "/workflows/translate/runs", body)
            assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "invalid_field", "conversation")


@pytest.mark.parametrize("prefer", ["respond-async", "Respond-Async; x=1", "wait=5, respond-async"])
async def test_respond_async_returns_202_with_the_run_location(prefer: str) -> None:
    """`Prefer: respond-async`: 202 at once, with where to look (RFC 7240)."""
    async with bureau() as counter:
        status, run, headers = await counter.run("translate", {"text": "sleep"}, Prefer=prefer)
        assert (status, run["state"], run["result"]) == (202, "running", None)
        assert headers["Location"] == "/context/runs/run_1" and headers["Preference-Applied"] == "respond-async"
        assert counter.bureau.wanted[0].detached and not counter.bureau.running[0].done()


async def test_unsupported_prefer_values_are_ignored() -> None:
    """`wait` is not offered."""
    async with bureau() as counter:
        status, _, headers = await counter.run("translate", {"text": "x"}, Prefer="wait=5, return=minimal")
        assert status == 200 and "Preference-Applied" not in headers


async def test_paused_workflow_run_returns_202_with_its_approvals() -> None:
    """Sync: 202 with the run, and what is to be decided."""
    async with bureau() as counter:
        status, run, headers = await counter.run("deploy", {})
        assert (status, run["state"], run["pending"], run["result"]) == (202, "awaiting_approval", 1, None)
        assert [approval["id"] for approval in run["approvals"]] == ["ap_1"]
        assert headers["Location"] == "/context/runs/run_1" and "Preference-Applied" not in headers


async def test_a_run_that_fails_names_its_step() -> None:
    """With a status that no SDK answers by trying again."""
    async with bureau() as counter:
        status, answer, _ = await counter.run("break", {})
        error = answer["error"]
        assert (status, error["code"], error["type"]) == (422, "workflow_failed", "invalid_request_error")
        assert "'first'" in error["message"] and "Error: it broke" in error["message"] and "run_1" in error["message"]


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({}, "text"),
        ({"text": 3}, "text"),
        ({"text": "x", "language": "French"}, "language"),
        ({"text": "x", "times": "3"}, "times"),
        ({"text": "x", "txet": "y"}, "txet"),
    ],
)
async def test_invalid_workflow_parameters_error_names_the_parameter(parameters: dict[str, object], param: str) -> None:
    """422 invalid_parameters; nothing is begun."""
    async with bureau() as counter:
        status, answer, _ = await counter.run("translate", parameters)
        error = answer["error"]
        assert (status, error["code"], error["param"]) == (422, "invalid_parameters", param)
        assert repr(param) in error["message"] and not counter.bureau.wanted


async def test_invalid_workflow_run_body_is_refused() -> None:
    """Fields, their types, JSON with two readings."""
    async with bureau() as counter:
        for body, code, param in (
            ({"parameter": {}}, "unknown_field", "parameter"),
            ({"parameters": []}, "invalid_field", "parameters"),
            ([], "invalid_json", None),
        ):
            status, answer, _ = await counter.ask("POST", "/workflows/deploy/runs", body)
            assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, code, param)
        assert (await counter.ask("POST", "/workflows/deploy/runs?x=1", {}))[1]["error"]["code"] == "unknown_field"
        assert not counter.bureau.wanted


async def test_an_unknown_workflow_is_404() -> None:
    """As a page and as a run; what it says leads to the list."""
    async with bureau() as counter:
        for method, path in (
            ("GET", "/workflows/nope"),
            ("POST", "/workflows/nope/runs"),
            ("GET", "/workflows/..%2Fetc"),
            ("POST", "/workflows/categories/runs"),
        ):
            status, answer, _ = await counter.ask(method, path, None if method == "GET" else {})
            assert (status, answer["error"]["code"]) == (404, "workflow_not_found")
            assert "GET /workflows" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/workflows"),
        ("GET", "/workflows/categories"),
        ("GET", "/workflows/deploy"),
        ("POST", "/workflows/deploy/runs"),
    ],
)
async def test_workflow_pages_require_the_context_scope(method: str, path: str) -> None:
    """For looking and for running."""
    async with bureau() as counter:
        for key, status in (("", 401), ("reader", 403), ("console", 403), ("root", 403)):
            assert (await counter.ask(method, path, key=key))[0] == status
        assert not counter.bureau.wanted


async def test_workflow_run_is_notified_when_its_client_disconnects() -> None:
    """A client that closes while it waits has left its run."""
    async with bureau() as counter:
        asking = asyncio.create_task(counter.run("translate", {"text": "sleep"}))
        await until(lambda: counter.bureau.running)
        asking.cancel()
        async with asyncio.timeout(120):
            await counter.bureau.gone.wait()
