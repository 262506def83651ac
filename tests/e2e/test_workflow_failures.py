"""What goes wrong in a workflow, and what users write: no template engine reads it."""

import asyncio
import json
from pathlib import Path

import pytest

from .asking import born
from .models import CUT, Json, refuses, says
from .workflow_cases import ECHO, REPORT, folder_of, run, sent, working

# What goes wrong.


async def test_a_failed_step_is_named(tmp_path: Path) -> None:
    """422, which no SDK repeats; the run is on record with what went wrong, and no later step ran."""
    broken = {
        **REPORT,
        "steps": [{"name": "rows", "tool": "execute_sql", "with": {"sql": "SELECT * FROM cats"}}, *REPORT["steps"][1:]],
    }
    async with working(tmp_path, workflows=(broken,)) as world:
        failed = await run(world, "report", {"legs": 4})
        error = failed.error
        assert (failed.status, error["code"], failed.headers["x-should-retry"]) == (422, "workflow_failed", "false")
        (there,) = (await world.get("/context/runs")).json["data"]
        assert there["state"] == "failed" and there["id"] in error["message"]
        assert "'report'" in error["message"] and "'rows'" in error["message"] and "no such table" in error["message"]
        whole = await world.run(there["id"])
        assert whole["error"]["code"] == "workflow_failed" and whole["steps"][0]["state"] == "failed"
        assert world.model.asked == []
        assert await world.counted('gateway_workflow_runs_total{outcome="failed",workflow="report"}') == 1


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"tool": "execute_sq", "with": {}}, "there is no tool 'execute_sq'. Did you mean execute_sql?"),
        ({"tool": "execute_sql", "with": {"query": "SELECT 1"}}, "the parameters do not fit"),
        (
            {"tool": "file_operations", "with": {"operation": "read", "path": "../../etc/passwd"}},
            "the path leaves the folder",
        ),
    ],
)
async def test_a_step_that_cannot_run_is_named(tmp_path: Path, step: Json, why: str) -> None:
    """A tool that there is not, arguments that do not fit, what the tool itself refuses: nobody is asked."""
    workflow = {"name": "wrong", "description": "x", "steps": [{"name": "first", **step}]}
    async with working(tmp_path, workflows=(workflow,)) as world:
        failed = await run(world, "wrong", {})
        assert (failed.status, failed.error["code"]) == (422, "workflow_failed")
        assert "'first'" in failed.error["message"] and why in failed.error["message"]
        assert (await world.get("/context/approvals")).json["data"] == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failed_step_is_named_in_a_chat(tmp_path: Path, *, stream: bool) -> None:
    """As an error, or in the stream, which then has no end that looks like one."""
    async with working(tmp_path) as world:
        workflow = {"name": "wrong", "description": "x", "steps": [{"name": "first", "tool": "nope"}]}
        folder_of(tmp_path, workflow)
        await world.reload()
        if stream:
            streamed = await world.stream("/wrong")
            (error,) = [frame["error"] for frame in streamed.frames if "error" in frame]
            assert streamed.finishes == [] and streamed.events[-1] != b"[DONE]"
        else:
            error = (await world.chat("/wrong")).error
        assert error["code"] == "workflow_failed" and "'first'" in error["message"]


async def test_a_model_that_fails_names_its_step(tmp_path: Path) -> None:
    """Before a tool has run a client may try again, and does not get the old failure again; afterwards it may not."""
    answers = (refuses(500), says("Fine."), says("Ad", CUT), refuses(401))
    async with working(tmp_path, *answers) as world:
        failed = await world.chat("/summary Pets.")
        assert (failed.status, failed.error["code"]) == (500, "upstream_error")
        assert "the step 'said' of the workflow 'summary'" in failed.error["message"]
        assert (await world.chat("/summary Pets.")).text == "Fine."
        cut = await run(world, "summary", {"text": "x"})
        assert cut.status == 502 and "'said'" in cut.error["message"]
        late = await run(world, "report", {"legs": 4})
        assert (late.status, late.error["code"], late.headers["x-should-retry"]) == (401, "upstream_refused", "false")
        assert "the step 'said' of the workflow 'report'" in late.error["message"]


async def test_workflow_run_stops_at_the_loop_timeout(tmp_path: Path) -> None:
    """`timeout` of the agent loop holds for a workflow, too, and the error names the step."""
    never = asyncio.Event()
    async with working(tmp_path, says("Ad", never), loop={"timeout": "100ms"}) as world:
        late = await run(world, "summary", {"text": "x"})
        assert (late.status, late.error["code"]) == (504, "agent_timeout") and "'said'" in late.error["message"]
        assert await world.counted('gateway_workflow_runs_total{outcome="timeout",workflow="summary"}') == 1
        never.set()


async def test_a_chain_without_an_agent_loop_runs_no_workflow(tmp_path: Path) -> None:
    """It executes nothing, so it says so."""
    chains: Json = {
        "assistant": [{"use": "agent_loop"}],
        "plain": [{"use": "prompt_enhancer", "with": {"tools": False}}],
    }
    async with working(tmp_path, chains=chains) as world:
        refused = await run(world, "echo", {"text": "x"}, X_Context_Chain="plain")
        assert (refused.status, refused.error["code"]) == (422, "workflow_failed") and "'plain'" in refused.error[
            "message"
        ]
        assert (await world.chat("/echo x", headers={"X-Context-Chain": "plain"})).error["code"] == "workflow_failed"


# T32: no template engine on what users write.


@pytest.mark.parametrize(
    "text",
    [
        "{{steps.rows}}",
        "{{params.title}}",
        "{{ params.text }}",
        "{{config.keys}}",
        "{% for k in config.keys %}{{k}}{% endfor %}",
        "${OPENAI_API_KEY} $HOME `id`",
        "{0.__class__} {text} %(text)s",
        "<script>{{7*7}}</script>",
    ],
)
async def test_user_text_is_never_expanded_as_a_template(tmp_path: Path, text: str) -> None:
    """By REST, by chat, to a tool and to a model."""
    looks = {
        "name": "looks",
        "description": "x",
        "parameters": {"text": {"required": True}},
        "steps": [
            {"name": "rows", "tool": "execute_sql", "with": {"sql": "SELECT '{{params.text}}', 1"}},
            {"name": "said", "model": "{{params.text}}"},
            {"name": "end", "prompt": "{{params.text}} {{steps.said}}"},
        ],
    }
    async with working(tmp_path, says(text), workflows=(ECHO, looks)) as world:
        assert (await run(world, "echo", {"text": text})).json["result"] == f"[{text}]"
        assert (await world.chat(f"/echo {text}")).text == f"[{text}]"
        done = await run(world, "looks", {"text": text})
        assert done.json["steps"][0]["arguments"] == {"sql": "SELECT ?1, 1", "params": [text]}
        assert sent(world.model.asked) == [[{"role": "user", "content": text}]]
        assert done.json["result"] == f"{text} {text}"


@pytest.mark.parametrize(
    "place", ["{{params.what}}", "'{{params.what}}'", "'a' || {{params.what}} || '{{params.what}}'"]
)
async def test_workflow_parameter_is_bound_as_an_sql_value(tmp_path: Path, place: str) -> None:
    """The statement is the author's, whatever its user writes: the value finds nobody of that name."""
    sql = {"name": "rows", "tool": "execute_sql", "with": {"sql": f"SELECT name FROM pets WHERE name = {place}"}}
    find = {"name": "find", "description": "x", "parameters": {"what": {"required": True}}, "steps": [sql]}
    async with working(tmp_path, workflows=(find,)) as world:
        for text in ("' OR '1'='1", "x' UNION SELECT name FROM pets --", "1) OR (1=1"):
            done = await run(world, "find", {"what": text})
            assert (done.status, json.loads(done.json["result"])["rows"]) == (200, [])


async def test_misplaced_parameter_reference_fails_the_step(tmp_path: Path) -> None:
    """Nothing runs, and the error names the reference."""
    sql = {"name": "rows", "tool": "execute_sql", "with": {"sql": "SELECT name FROM {{params.what}}_old"}}
    find = {"name": "find", "description": "x", "parameters": {"what": {"required": True}}, "steps": [sql]}
    async with working(tmp_path, workflows=(find,)) as world:
        failed = await run(world, "find", {"what": "pets"})
        assert failed.status == 422
        assert "{{params.what}} stands as a part of a word" in failed.json["error"]["message"]


async def test_statement_parameter_is_judged_as_a_whole(tmp_path: Path) -> None:
    """A parameter that is the statement is seen by the gate: what does not only read asks."""
    sql = {"name": "rows", "tool": "execute_sql", "with": {"sql": "{{params.what}}"}}
    find = {"name": "find", "description": "x", "parameters": {"what": {"required": True}}, "steps": [sql]}
    async with working(tmp_path, workflows=(find,)) as world:
        assert (await run(world, "find", {"what": "SELECT name FROM pets"})).status == 200
        asked = await run(world, "find", {"what": "DELETE FROM pets"})
        assert (asked.status, asked.json["state"], born(tmp_path)) == (202, "awaiting_approval", [])
