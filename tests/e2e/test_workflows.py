"""Workflows as users meet them: the design's decisions 3 and 5, over HTTP against a whole gateway."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from gateways import key

from gateway.agent.workflow_loop import RESULT_CHARS

from .asking import born
from .models import Json, call, native, refuses, says
from .test_runs import events
from .test_streams import is_clean
from .workflow_cases import ALL, ECHO, REPORT, SUMMARY, folder_of, run, sent, working

ROWS = '{"columns":["name"],"rows":[["Ada"]],"truncated":false}'


# Decision 3, "Visibility: visible in UI selector", and decision 5, "Category System for Workflows".


async def test_workflows_are_visible_with_their_category(tmp_path: Path) -> None:
    """Registry: the files of the folder. Tools are not listed anywhere."""
    async with working(tmp_path) as world:
        listed = (await world.get("/workflows")).json
        assert listed["object"] == "list"
        assert [(one["name"], one["category"]) for one in listed["data"]] == [
            ("birth", "ranch"),
            ("echo", "general"),
            ("report", "reports"),
            ("summary", "reports"),
        ]
        assert listed["data"][2]["description"] == "Says what there is of a kind of pet."
        only = (await world.get("/workflows?category=reports")).json["data"]
        assert [one["name"] for one in only] == ["report", "summary"]
        assert (await world.get("/workflows/execute_sql")).status == 404


async def test_categories_determine_ui_grouping(tmp_path: Path) -> None:
    """`/workflows/categories` returns workflow categories, and nothing of the categories of tools."""
    async with working(tmp_path) as world:
        grouped = (await world.get("/workflows/categories")).json["data"]
        assert {one["name"]: one["workflows"] for one in grouped} == {
            "general": ["echo"],
            "ranch": ["birth"],
            "reports": ["report", "summary"],
        }


async def test_workflow_page_returns_a_parameter_schema(tmp_path: Path) -> None:
    """Parameter extraction "from user input or form": the JSON Schema of its parameters, and what its steps are."""
    async with working(tmp_path) as world:
        shown = (await world.get("/workflows/report")).json
        form = shown["parameters"]
        assert (form["type"], form["required"], form["additionalProperties"]) == ("object", ["legs"], False)
        assert form["properties"]["legs"] == {
            "type": "integer",
            "title": "Legs",
            "description": "How many legs they have.",
        }
        assert form["properties"]["title"]["default"] == "Pets"
        assert form["properties"]["style"]["enum"] == ["short", "long"]
        assert [(step["name"], step["kind"], step.get("tool")) for step in shown["steps"]] == [
            ("rows", "tool", "execute_sql"),
            ("said", "model", None),
            ("page", "prompt", None),
        ]
        unknown = await world.get("/workflows/nope")
        assert (unknown.status, unknown.error["code"]) == (404, "workflow_not_found")


async def test_reload_reads_changed_workflow_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new file is a new workflow; a wrong one leaves everything as it was, and says where it is wrong."""
    async with working(tmp_path, workflows=(ECHO,)) as world:
        folder_of(tmp_path, REPORT)
        await world.reload()
        assert [one["name"] for one in (await world.get("/workflows")).json["data"]] == ["echo", "report"]
        folder_of(tmp_path, {**REPORT, "steps": [{"name": "x", "model": "{{steps.y}}"}]})
        await world.reload()
        assert "there is no step of this name" in caplog.text
        assert (await world.get("/workflows/report")).json["steps"][0]["name"] == "rows"


async def test_documented_workflow_example_works(tmp_path: Path) -> None:
    """docs/workflows.md: it loads, asks about its call, and tells what it says."""
    page = (Path(__file__).parents[2] / "docs/workflows.md").read_text()
    (written,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE fruit (name, price)")
    tools = {"execute_sql": {"url": f"sqlite:///{tmp_path}/shop.db", "read_only": False}}
    async with working(tmp_path, says("It is sour."), workflows=(yaml.safe_load(written),), tools=tools) as world:
        asked = await run(world, "new-fruit", {"name": "Quince", "price": 3})
        bound = {"sql": "INSERT INTO fruit VALUES (?1, ?2)", "params": ["Quince", 3]}
        assert asked.json["approvals"][0]["arguments"] == bound
        await world.decide(asked.json["approvals"][0]["id"])
        done = await world.run(asked.json["id"], state="completed")
        assert done["result"].startswith("It is sour.\n\nStored: {")


# "Parse from user input or form".


async def test_workflow_parameters_are_read_from_json(tmp_path: Path) -> None:
    """With their defaults; the steps run in order, each with what came before it."""
    async with working(tmp_path, says("Ada, ", "alone.")) as world:
        done = await run(world, "report", {"legs": 4})
        assert (done.status, done.json["state"], done.json["result"]) == (200, "completed", "# Pets\nAda, alone.")
        assert sent(world.model.asked) == [[{"role": "user", "content": f"Who are they?\n{ROWS}"}]]
        assert done.headers["X-Context-Run-Id"] == done.json["id"]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("/report 4", "Pets"),
        ("/report legs=4", "Pets"),
        ("  /report title='Four legs' legs=4", "Four legs"),
        ("/report 4\ntitle=Dogs", "Dogs"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_workflow_parameters_are_read_from_chat_text(
    tmp_path: Path, text: str, title: str, *, stream: bool
) -> None:
    """`/name` is the first word: the answer is the workflow's, and no stage of the chain has its say."""
    workflow = {
        **REPORT,
        "parameters": {**REPORT["parameters"], "title": {"default": "Pets", "enum": ["Pets", "Four legs", "Dogs"]}},
    }
    if " 4" in text:  # other text than name=value is for the one parameter that can take it
        workflow["parameters"] = {"legs": {"required": True}, "title": {"default": "Pets"}}
    async with working(tmp_path, says("Ada."), workflows=(workflow,)) as world:
        answer = await (world.stream if stream else world.chat)(text)
        assert answer.text == f"# {title}\nAda."
        headers = answer.response.headers if stream else answer.headers  # type: ignore[union-attr]
        assert "X-Context-Intent" not in headers
        assert sent(world.model.asked) == [[{"role": "user", "content": f"Who are they?\n{ROWS}"}]]
        whole = await world.run(headers["X-Context-Run-Id"])
        assert (whole["kind"], whole["workflow"]) == ("workflow", "report")


@pytest.mark.parametrize(
    ("parameters", "param", "why"),
    [
        ({}, "legs", "it is required"),
        ({"legs": "4"}, "legs", "it must be a whole number"),
        ({"legs": 4, "style": "loud"}, "style", "it must be one of short, long"),
        ({"legs": 4, "colour": "red"}, "colour", "there is no such parameter; there are legs, title, style"),
    ],
)
async def test_invalid_workflow_parameter_is_named_in_the_error(
    tmp_path: Path, parameters: Json, param: str, why: str
) -> None:
    """By REST; nothing has begun."""
    async with working(tmp_path) as world:
        refused = await run(world, "report", parameters)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (422, "invalid_parameters", param)
        assert why in refused.error["message"] and repr(param) in refused.error["message"]
        assert (await world.get("/context/runs")).json["data"] == [] and world.model.asked == []


@pytest.mark.parametrize(
    ("text", "param"), [("/report", "legs"), ("/report legs=four", "legs"), ("/report legs=4 style=loud", "style")]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_invalid_workflow_parameter_is_named_in_a_chat_error(
    tmp_path: Path, text: str, param: str, *, stream: bool
) -> None:
    """Also of a stream: there is none yet."""
    async with working(tmp_path) as world:
        refused = await world.chat(text, stream=stream)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (422, "invalid_parameters", param)
        assert repr(param) in refused.error["message"] and world.model.asked == []


@pytest.mark.parametrize(
    "content",
    [
        "/nope 4",
        "Please /report 4",
        "/report/4",
        "//report 4",
        [{"type": "text", "text": "/report 4"}, {"type": "image_url", "image_url": {"url": "data:,"}}],
    ],
)
async def test_unknown_workflow_name_is_sent_to_the_model_as_text(tmp_path: Path, content: str | list[Json]) -> None:
    """And so is everything that does not begin with `/name`: the model gets it as it is."""
    async with working(tmp_path, says("What?")) as world:
        answer = await world.chat([{"role": "user", "content": content}])
        assert (answer.text, answer.headers["X-Context-Intent"]) == ("What?", "normal")
        assert world.model.asked[0]["messages"][-1]["content"] == content


async def test_workflow_is_called_only_by_the_last_user_message(tmp_path: Path) -> None:
    """Not an earlier one, nor what a model or a tool says."""
    async with working(tmp_path, says("One."), says("Two.")) as world:
        user = {"role": "user", "content": "/echo text=hi"}
        assert (await world.chat([user, {"role": "assistant", "content": "[hi]"}, {**user, "content": "And?"}])).text
        assert (await world.chat([{**user, "content": "Hi"}, {**user, "role": "assistant"}])).text == "Two."
        assert len(world.model.asked) == 2


# "Simple": steps in order, no branches.


async def test_prompt_step_returns_text_without_a_model(tmp_path: Path) -> None:
    """No model is asked."""
    async with working(tmp_path) as world:
        assert (await run(world, "echo", {"text": "hi"})).json["result"] == "[hi]"
        assert world.model.asked == []


@pytest.mark.parametrize(
    "said",
    [
        says(json.dumps(call("execute_sql", sql="DELETE FROM pets"))),
        says("```json\n", json.dumps(call("execute_sql", sql="DELETE FROM pets")), "\n```"),
        says("{{params.text}} {{steps.said}}"),
    ],
)
async def test_model_step_answer_is_never_run_as_a_call(tmp_path: Path, said: object) -> None:
    """A model step is one call without tools: what looks like a call of one is its answer."""
    async with working(tmp_path, said) as world:  # type: ignore[arg-type]
        done = await run(world, "summary", {"text": "Pets."})
        assert done.json["result"] == "".join(said.pieces)  # type: ignore[attr-defined]
        assert done.json["steps"] == [] and len(world.model.asked) == 1
        assert not {"tools", "tool_choice"} & world.model.asked[0].keys()


async def test_native_call_in_a_model_step_is_ignored(tmp_path: Path) -> None:
    """Nobody offered it tools."""
    async with working(tmp_path, native(("execute_sql", {"sql": "DELETE FROM pets"}), text="So.")) as world:
        done = await run(world, "summary", {"text": "Pets."})
        assert (done.json["result"], done.json["steps"]) == ("So.", [])


async def test_model_step_receives_no_chat_messages_or_tools(tmp_path: Path) -> None:
    """Neither its messages nor its tools; what else the client asked of the model holds."""
    tools = [{"type": "function", "function": {"name": "mine", "parameters": {"type": "object"}}}]
    said = [
        {"role": "system", "content": "Be rude."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "What?"},
        {"role": "user", "content": "/summary Pets are nice."},
    ]
    async with working(tmp_path, says("Pets.")) as world:
        assert (await world.chat(said, tools=tools, temperature=0.5)).text == "Pets."
        (asked,) = world.model.asked
        assert asked["messages"] == [{"role": "user", "content": "What is this about?\nPets are nice."}]
        assert (asked["model"], asked["temperature"], "tools" in asked) == ("m", 0.5, False)


async def test_workflow_run_uses_the_requested_or_default_model(tmp_path: Path) -> None:
    """`model` beside the parameters; else the configuration's."""
    async with working(tmp_path, says("One."), says("Two.")) as world:
        await run(world, "summary", {"text": "x"}, body={"model": "large"})
        await run(world, "summary", {"text": "x"})
        assert [body.get("model") for body in world.model.asked] == ["large", None]


async def test_long_step_result_is_shortened_for_the_model_only(tmp_path: Path) -> None:
    """Tools that need it are not called with half of it."""
    long = "x" * (RESULT_CHARS + 10)
    step = {"name": "again", "tool": "execute_sql", "with": {"sql": "{{steps.said}}"}}
    cut = {**SUMMARY, "name": "cut", "steps": [*SUMMARY["steps"], step]}
    shortened = {**SUMMARY, "name": "shortened", "steps": [*SUMMARY["steps"], {"name": "o", "model": "{{steps.said}}"}]}
    answers = (says(long), says(long), says("Long."), says(long))
    async with working(tmp_path, *answers, workflows=(SUMMARY, cut, shortened)) as world:
        assert (await run(world, "summary", {"text": "x"})).json["result"] == long
        assert (await run(world, "shortened", {"text": "x"})).json["result"] == "Long."
        assert world.model.asked[-1]["messages"][0]["content"].endswith("x\n[... 10 characters omitted]")
        failed = await run(world, "cut", {"text": "x"})
        assert (failed.status, failed.error["code"]) == (422, "workflow_failed") and "'again'" in failed.error[
            "message"
        ]


# The journal, the audit log, the metrics.


async def test_workflow_run_is_recorded_with_its_kind(tmp_path: Path) -> None:
    """`GET /context/runs/{id}`: its kind, its calls under the names of their steps, its result."""
    async with working(tmp_path, says("Ada.")) as world:
        done = await run(world, "report", {"legs": 4}, body={"conversation": "c1"})
        whole = await world.run(done.json["id"])
        assert whole == done.json
        assert (whole["kind"], whole["workflow"], whole["conversation"]) == ("workflow", "report", "c1")
        assert [(s["name"], s["tool"], s["decision"], s["state"]) for s in whole["steps"]] == [
            ("rows", "execute_sql", "auto", "finished")
        ]
        assert whole["steps"][0]["arguments"] == {"sql": "SELECT name FROM pets WHERE legs = ?1", "params": [4]}
        assert whole["steps"][0]["result"] == ROWS and whole["result"] == "# Pets\nAda."
        assert whole["answer"]["usage"]["total_tokens"] == 18
        told = await events(world, done.json["id"])
        assert [kind for _, kind, _ in told] == ["tool.started", "tool.finished", "run.finished"]
        listed = (await world.get("/context/runs?conversation=c1")).json["data"]
        assert [(one["id"], one["kind"]) for one in listed] == [(done.json["id"], "workflow")]


async def test_workflow_calls_are_audited_and_counted(tmp_path: Path) -> None:
    """As those of a model are; runs are counted by workflow and outcome, and are no runs of an agent."""
    async with working(tmp_path, says("Ada."), refuses(500)) as world:
        done = await run(world, "report", {"legs": 4})
        assert (await run(world, "summary", {"text": "x"})).status == 500
        lines = (await world.get("/context/audit?limit=200")).json["data"]
        assert [(line["run_id"], line["event"], line["tool"]) for line in lines] == [
            (done.json["id"], "verdict", "execute_sql"),
            (done.json["id"], "started", "execute_sql"),
            (done.json["id"], "finished", "execute_sql"),
        ]
        for name, outcome in (("report", "completed"), ("summary", "error")):
            label = f'outcome="{outcome}",workflow="{name}"'
            assert await world.counted(f"gateway_workflow_runs_total{{{label}}}") == 1
        assert await world.counted('gateway_agent_runs_total{outcome="completed"}') == 0
        assert await world.counted('gateway_tool_calls_total{outcome="ok",tool="execute_sql"}') == 1


# Who sees what.

KEYS = [
    {**key("ann", "context", "approve"), "tenant": "farm"},
    {**key("bob", "context", "approve"), "tenant": "farm"},
    {**key("eve", "context", "approve"), "tenant": "zoo"},
    key("console", "approve"),
    key("client", "passthrough"),
    key("root", "admin"),
]


async def test_workflow_runs_are_visible_only_to_their_tenant(tmp_path: Path) -> None:
    """The workflows are the same for all; a run is its tenant's, and so is what it asks."""
    upstream = {"api_key": "sk-up"}
    async with working(tmp_path, says("Well."), keys=KEYS, upstream=upstream) as world:
        asked = await run(world, "birth", {"name": "Di"}, key="ann")
        assert asked.status == 202
        run_id, approval_id = asked.json["id"], asked.json["approvals"][0]["id"]
        for path in (f"/context/runs/{run_id}", f"/context/approvals/{approval_id}"):
            assert (await world.get(path, **{"X-Gateway-Key": "bob"})).status == 200
            assert (await world.get(path, **{"X-Gateway-Key": "eve"})).status == 404
        assert (await world.get("/context/runs", **{"X-Gateway-Key": "eve"})).json["data"] == []
        assert len((await world.get("/workflows", **{"X-Gateway-Key": "eve"})).json["data"]) == len(ALL)
        assert (await world.decide(approval_id, key="eve")).status == 404
        said = {"headers": {"X-Gateway-Key": "eve"}}
        assert (await world.chat(f"approve {approval_id}", **said)).status == 404
        assert born(tmp_path) == []


@pytest.mark.parametrize(
    ("caller", "status"), [("", 401), ("nobody", 401), ("console", 403), ("client", 403), ("root", 403)]
)
async def test_workflows_need_the_scope_context(tmp_path: Path, caller: str, status: int) -> None:
    """To look at them and to run them."""
    async with working(tmp_path, keys=KEYS, upstream={"api_key": "sk-up"}) as world:
        headers = {"X-Gateway-Key": caller} if caller else {}
        for path in ("/workflows", "/workflows/categories", "/workflows/echo"):
            assert (await world.get(path, **headers)).status == status
        assert (await run(world, "echo", {"text": "x"}, key=caller)).status == status
        assert (await world.chat("/echo x", headers=headers)).status == status


# "Stream final response".


async def test_streamed_workflow_answer_is_one_completion(tmp_path: Path) -> None:
    """Nothing of the steps, one finish reason, one usage for all of its calls of the model."""
    twice = {**SUMMARY, "steps": [*SUMMARY["steps"], {"name": "o", "model": "Shorter: {{steps.said}}"}]}
    async with working(tmp_path, says("Long."), says("Short."), workflows=(twice,)) as world:
        stream = await world.stream("/summary Pets.", stream_options={"include_usage": True})
        is_clean(stream, usage=True)
        assert (stream.text, stream.finishes, stream.told) == ("Short.", ["stop"], [])
        (usage,) = [frame["usage"] for frame in stream.frames if frame.get("usage")]
        assert usage["total_tokens"] == 36


async def test_workflow_stream_contains_events_when_requested(tmp_path: Path) -> None:
    """`X-Context-Events: 1`, as of any run."""
    async with working(tmp_path, says("Ada.")) as world:
        stream = await world.stream("/report legs=4", headers={"X-Context-Events": "1"})
        assert [event["type"] for event in stream.told] == [
            *("run.started", "tool.started", "tool.finished", "step.started", "step.finished", "run.finished")
        ]
        assert stream.text == "# Pets\nAda."


async def test_workflow_answer_is_part_of_the_conversation(tmp_path: Path) -> None:
    """The model of the next message sees question and answer, as the client sends them."""
    async with working(tmp_path, says("Ada."), says("Yes.")) as world:
        first = await world.chat("/report legs=4")
        said = [{"role": "user", "content": "/report legs=4"}, first.message, {"role": "user", "content": "Is it?"}]
        assert (await world.chat(said)).text == "Yes."
        seen = world.model.asked[-1]["messages"][1:]
        assert [(message["role"], message["content"]) for message in seen] == [
            ("user", "/report legs=4"),
            ("assistant", "# Pets\nAda."),
            ("user", "Is it?"),
        ]
