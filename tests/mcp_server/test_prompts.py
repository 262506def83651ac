"""The prompts that there are: workflows where the configuration says so, then those of services."""

from pathlib import Path

import pytest
import yaml

from tests.mcp_server.serving import world

FLOW = {
    "name": "hello",
    "description": "Says hello.",
    "parameters": {"who": {"required": True}},
    "steps": [{"name": "said", "model": "Greet {{params.who}}."}],
}


@pytest.mark.parametrize(("wanted", "is_there"), [("prompts", True), ("off", False)])
async def test_workflows_are_listed_as_prompts_when_configured(tmp_path: Path, wanted: str, is_there: bool) -> None:
    """Not on the path of a service."""
    folder = tmp_path / "flows"
    folder.mkdir(mode=0o700)
    folder.joinpath("hello.yaml").write_text(yaml.safe_dump(FLOW))
    folder.joinpath("hello.yaml").chmod(0o600)
    async with world({"workflows": wanted}, workflows={"folder": str(folder)}) as made:
        async with made.client() as client:
            names = [prompt.name for prompt in (await client.list_prompts()).prompts]
            assert names == (["hello", "here__greet"] if is_there else ["here__greet"])
            if is_there:
                (message,) = (await client.get_prompt("hello", {"who": "Ann"})).messages
                assert "Greet Ann." in getattr(message.content, "text", "")
        async with made.client(path="/here") as client:
            assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["greet"]
