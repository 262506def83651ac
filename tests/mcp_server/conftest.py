"""Fixtures that the tests of the endpoint share."""

from pathlib import Path

import pytest

from tests.mcp_server import hostile

CALM = '''"""Knows every call to be harmless."""

from gateway.plugin import Plugin, Verdict
from pydantic import BaseModel


class Config(BaseModel):
    """It has no settings."""


class Calm:
    def assess(self, arguments):
        return Verdict("auto", "whitelist", "calm", "It is known.")


PLUGIN = Plugin(Config, lambda config, host: Calm())
'''


@pytest.fixture
def calm(tmp_path: Path) -> dict[str, object]:
    """Sections of a configuration in which calls of some tools of the service `here` run unasked."""
    file = tmp_path / "plugins" / "assessors" / "calm.py"
    file.parent.mkdir(parents=True, mode=0o700)
    file.write_text(CALM)
    file.chmod(0o600)
    tools = (
        "echo",
        "add",
        "image",
        "structured",
        "link",
        "picture",
        "hurt",
        "sleep",
        "wait",
        "progress",
        "fail",
        "cancelled",
        "big",
        "pid",
        *hostile.RESULTS,
    )
    assessors = {f"here.{tool}": {"use": "calm"} for tool in tools}
    return {
        "plugins": {"folder": str(tmp_path / "plugins")},
        "risk": {"trust_llm": "never", "assessors": assessors},
    }
