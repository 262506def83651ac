"""What the tests of workflows share: a folder of them over the ranch, and the words with which they are run."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from .asking import ranch
from .models import Answer, Json
from .talking import Completed, World, talking

RUN = "/workflows/{}/runs"

#: A tool that only reads, the model, a text: each step needs what came before it.
REPORT: Json = {
    "name": "report",
    "category": "reports",
    "description": "Says what there is of a kind of pet.",
    "parameters": {
        "legs": {"type": "integer", "required": True, "description": "How many legs they have."},
        "title": {"default": "Pets", "description": "The heading."},
        "style": {"enum": ["short", "long"]},
    },
    "steps": [
        {
            "name": "rows",
            "tool": "execute_sql",
            "with": {"sql": "SELECT name FROM pets WHERE legs = {{params.legs}}"},
        },
        {"name": "said", "model": "Who are they?\n{{steps.rows}}"},
        {"name": "page", "prompt": "# {{params.title}}\n{{steps.said}}"},
    ],
}
#: A step that a person must let run, between two that need nobody.
BIRTH: Json = {
    "name": "birth",
    "category": "ranch",
    "description": "Writes a new pet down.",
    "parameters": {"name": {"required": True}},
    "steps": [
        {"name": "wish", "model": "Wish {{params.name}} well."},
        {
            "name": "born",
            "tool": "execute_sql",
            "with": {"sql": "INSERT INTO pets VALUES ('{{params.name}}', 4)"},
        },
        {"name": "card", "prompt": "{{params.name}} is here. {{steps.wish}}"},
    ],
}
#: A text in which everything that might be a template stays what it is.
ECHO: Json = {
    "name": "echo",
    "description": "Says it again.",
    "parameters": {"text": {"required": True}},
    "steps": [{"name": "said", "prompt": "[{{params.text}}]"}],
}
#: One call of the model, of which a client hears nothing before its end.
SUMMARY: Json = {
    "name": "summary",
    "category": "reports",
    "description": "Says what a text is about.",
    "parameters": {"text": {"required": True}},
    "steps": [{"name": "said", "model": "What is this about?\n{{params.text}}"}],
}
ALL = (REPORT, BIRTH, ECHO, SUMMARY)


def folder_of(folder: Path, *workflows: Json) -> Path:
    """A folder with a file for each of them."""
    home = folder / "flows"
    home.mkdir(mode=0o700, exist_ok=True)
    for workflow in workflows or ALL:
        file = home / f"{workflow['name']}.yaml"
        file.write_text(yaml.safe_dump(workflow, sort_keys=False))
        file.chmod(0o600)
    return home


@asynccontextmanager
async def working(
    folder: Path, *answers: Answer, workflows: tuple[Json, ...] = ALL, **settings: Any
) -> AsyncIterator[World]:
    """A gateway with the tools of the ranch and these workflows."""
    home = folder_of(folder, *workflows)
    tools = settings.pop("tools", None) or ranch(folder)
    async with talking(*answers, tools=tools, workflows={"folder": str(home)}, **settings) as world:
        yield world


async def run(world: World, name: str, parameters: Mapping[str, object], *, key: str = "", **more: Any) -> Completed:
    """A run by REST; headers are written with `_`, and `body_` is what stands beside the parameters."""
    beside = more.pop("body", {})
    headers = {name.replace("_", "-"): value for name, value in more.items()}
    if key:
        headers["X-Gateway-Key"] = key
    return await world.post({"parameters": dict(parameters), **beside}, path=RUN.format(name), headers=headers)


def sent(world_asked: list[Json]) -> list[list[Json]]:
    """The messages of every request that the model got."""
    return [body["messages"] for body in world_asked]
