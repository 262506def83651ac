"""`gateway workflows`: what there is, what one takes, and the result of a run."""

import json
from collections.abc import Callable, Iterator

import pytest
from api.workflow_pages import Counter, bureau
from cli_cases import told

from gateway.cli.operator.remote import Remote, RemoteError
from gateway.cli.operator.workflows import list_workflows, run_workflow, show_workflow
from gateway.contracts.api_bounds import LIMIT_MOST
from gateway.workflows.definition import Workflow


def remote(counter: Counter, *, key: str = "agent") -> Remote:
    return Remote(f"http://127.0.0.1:{counter.lane.port}", key)


def running(counter: Counter, name: str, **written: str) -> Callable[[], Iterator[str]]:
    return lambda: run_workflow(remote(counter), name, pairs=[*written.items()], given={}, wait=True)


async def test_workflows_are_listed_by_category() -> None:
    """With one line each; or as JSON."""
    async with bureau() as counter:
        assert await told(lambda: list_workflows(remote(counter), as_json=False)) == [
            "general",
            "  break  Fails.",
            "operations",
            "  deploy  Puts it there.",
            "writing",
            "  translate  Translates a text.",
        ]
        lines = await told(lambda: list_workflows(remote(counter), as_json=True))
        assert [json.loads(line)["name"] for line in lines] == ["break", "deploy", "translate"]
        counter.bureau.workflows.clear()
        assert await told(lambda: list_workflows(remote(counter), as_json=False)) == ["none"]


async def test_workflows_list_shows_more_than_one_page() -> None:
    """More than a gateway sends at once."""
    async with bureau() as counter:
        [workflow] = [each for name, each in counter.bureau.workflows.items() if name == "break"]
        names = [f"break-{n:03}" for n in range(LIMIT_MOST + 1)]
        counter.bureau.workflows.clear()
        counter.bureau.workflows.update({name: workflow.model_copy(update={"name": name}) for name in names})
        lines = await told(lambda: list_workflows(remote(counter), as_json=True))
        assert [json.loads(line)["name"] for line in lines] == names


async def test_workflows_show_prints_parameters_and_steps() -> None:
    """Its parameters with type, default and choices, and its steps."""
    async with bureau() as counter:
        assert await told(lambda: show_workflow(remote(counter), "translate", as_json=False)) == [
            "translate  writing",
            "  Translates a text.",
            "text=  string, required",
            "  The text.",
            'language=  string, default "English"',
            '  one of "English", "German"',
            "times=  integer",
            "step 1  said: model",
        ]
        assert (await told(lambda: show_workflow(remote(counter), "deploy", as_json=False)))[2:] == [
            "step 1  put: tool risky",
            "step 2  end: prompt",
        ]
        (line,) = await told(lambda: show_workflow(remote(counter), "deploy", as_json=True))
        assert json.loads(line)["parameters"]["type"] == "object"
        with pytest.raises(RemoteError, match="answered 404: The gateway has no workflow of this name"):
            await told(lambda: show_workflow(remote(counter), "nope", as_json=False))


async def test_workflow_run_command_prints_the_result() -> None:
    """Line by line; what is typed gets its type, and wins over the file."""
    async with bureau() as counter:
        lines = await told(running(counter, "translate", text="Hallo\nWelt\x1b[2J", times="3"))
        assert lines == ["[Into English: Hallo", "Welt\\u{1b}[2J]"]
        assert counter.bureau.wanted[0].parameters["times"] == 3
        given = {"text": "from the file", "language": "German"}
        lines = await told(
            lambda: run_workflow(remote(counter), "translate", pairs=[("text", "typed")], given=given, wait=True)
        )
        assert lines == ["[Into German: typed]"]
        lines = await told(
            lambda: run_workflow(remote(counter), "translate", pairs=[], given=given, conversation="c1", wait=True)
        )
        assert lines == ["[Into German: from the file]"] and counter.bureau.wanted[-1].conversation == "c1"
        assert counter.bureau.wanted[-1].model is None
        await told(lambda: run_workflow(remote(counter), "translate", pairs=[], given=given, model="large", wait=True))
        assert (counter.bureau.wanted[-1].model, counter.bureau.wanted[-1].conversation) == ("large", None)


async def test_workflow_run_without_wait_prints_its_run_id() -> None:
    """It goes on by itself."""
    async with bureau() as counter:
        given = {"text": "sleep"}
        lines = await told(lambda: run_workflow(remote(counter), "translate", pairs=[], given=given, wait=False))
        assert lines == ["run_1  running"] and counter.bureau.wanted[0].detached


async def test_workflow_run_awaiting_approval_prints_how_to_decide() -> None:
    """And how to look at it afterwards."""
    async with bureau() as counter:
        lines = await told(running(counter, "deploy"))
        assert lines[0] == "run_1  awaiting_approval"
        assert lines[-2:] == [
            "  to decide: gateway approvals show ap_1",
            "afterwards: gateway runs show run_1",
        ]


async def test_refused_workflow_run_names_the_parameter_or_step() -> None:
    """Here or by the gateway; a step that fails is named."""
    async with bureau() as counter:
        for written, said in (
            ({"times": "three", "text": "x"}, "Parameter 'times': it must be a whole number"),
            ({"txet": "x"}, "Parameter 'txet': there is no such parameter; there are text, language, times"),
            ({"language": "German"}, "answered 422: text: Parameter 'text': it is required"),
            ({"text": "x", "language": "French"}, "language: Parameter 'language': it must be one of English, German"),
        ):
            with pytest.raises(RemoteError, match=said):
                await told(running(counter, "translate", **written))
        with pytest.raises(RemoteError, match=r"answered 422: The workflow 'break' ended at its step 'first'"):
            await told(running(counter, "break"))
        with pytest.raises(RemoteError, match="answered 403"):
            await told(lambda: run_workflow(remote(counter, key="reader"), "deploy", pairs=[], given={}, wait=True))


async def test_workflow_author_text_is_escaped_for_the_terminal() -> None:
    """Control characters are written out, and no line passes for one of ours."""
    async with bureau() as counter:
        tree = {
            "name": "deploy",
            "description": "a\x1b[2J\nstep 9  x",
            "parameters": {"p": {"description": "b\nc"}},
            "steps": [{"name": "a", "tool": "t\n\u202e"}],
        }
        counter.bureau.workflows = {"deploy": Workflow.model_validate(tree)}
        lines = await told(lambda: show_workflow(remote(counter), "deploy", as_json=False))
        assert len(lines) == 5 and all(line.isprintable() for line in lines)
        assert lines[1] == "  a\\u{1b}[2J\\nstep 9  x"
