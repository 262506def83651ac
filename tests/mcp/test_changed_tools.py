"""The log line about a tool that is not as it was accepted, behind a whole gateway."""

import json
from functools import partial
from pathlib import Path

import gateways
import pytest

from tests.e2e.serving import asked_of, behaving, serving, tools_of, until, until_changed, until_pinned
from tests.e2e.test_mcp_pins import reads, restarted, thinks

#: The connections themselves are tested on both loops.
pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])


async def test_log_reports_once_which_values_of_a_tool_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before anybody is asked, and once: the place, and both values there."""
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps([reads("/home/a"), thinks()]))
    async with serving(servers={"box": behaving("defined", listed)}) as world:
        await until_pinned(world, "box")
        await restarted(world, listed, reads("/home/b"), thinks())
        await until_changed(world, "box")
        said = "service 'box': the tool 'read' is not as it was accepted, so each call asks a person "
        said += '(parameters.properties.path.default was "/home/a", is "/home/b"); '
        assert [one["name"] for one in await tools_of(world, "box") if one["changed"]] == ["read"]
        told = partial(filter, lambda message: message.startswith(said))
        await gateways.until(lambda: any(told(caplog.messages)))
        await asked_of(world, "/box/accept")
        assert (await until(world, "box"))["changed"] == []
    assert len([*told(caplog.messages)]) == 1
