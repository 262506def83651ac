"""The tools of one configuration; that all of them are built, or told of, is in test_assemble.py."""

from pathlib import Path

import pytest
from tools.toolbox import Toolbox

from gateway.assemble_tools import database_url, load_tools
from gateway.config import Problem, Settings
from gateway.tools.results import Results

from .test_assemble import toolbox


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("sqlite:///gateway.db", "sqlite:////srv/gw/gateway.db"),
        ("sqlite:///data/x.db", "sqlite:////srv/gw/data/x.db"),
        ("sqlite:////var/x.db", "sqlite:////var/x.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("postgresql://u:p@h/db", "postgresql://u:p@h/db"),
    ],
)
def test_a_database_file_is_beside_the_configuration(url: str, found: str) -> None:
    """Unless it is an absolute path, or no file."""
    assert database_url(url, Path("/srv/gw")) == found


async def test_rules_for_no_tool_are_told_of_where_plugins_know_the_names(tmp_path: Path) -> None:
    """Without plugins the file alone says it: the tools here are those of the file, and nothing is wrong with them."""
    rules = {"rules": {"look": "deny", "lok": "deny", "*": "confirm", "clock.now": "deny"}}
    for tools, told in (({"mine": toolbox("look")}, ["risk.rules.lok"]), ({}, [])):
        settings = Settings.model_validate({"tools": tools, "risk": rules}, context={"folder": tmp_path})
        found: list[Problem] = []
        catalog = await load_tools(settings, tmp_path, None, Results(), found)  # type: ignore[arg-type]  # no host
        assert [problem.path for problem in found] == told
        assert [name for name in catalog.names() if name == "look"] == list(tools and ["look"])
    assert len(Toolbox.built) >= 1
