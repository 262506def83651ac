"""The README and docs/clients.md are true: each snippet runs as it stands there and prints what stands there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.testing.run import GatewayProcess
from tests.clients.conftest import running
from tests.clients.snippets import ADDRESS, HELLO, read_snippets, run, save
from tests.clients.worker import ROOT

pytestmark = pytest.mark.clients

SNIPPETS = read_snippets()
START = "make run"
EVERY_CI_RUN = (
    "curl",
    "openai-python",
    "openai-python stream",
    "openai-python async",
    "openai-python context",
    "openai-python responses",
    "openai-node",
    "openai-node stream",
    "ai-sdk",
    "ai-sdk stream",
    "anthropic-python",
    "anthropic-node",
    "langchain-openai",
    "langchain-js",
    "langgraph",
    "openai-agents",
    "pydantic-ai",
    "instructor",
    "llm",
    "configuration",
    "health",
)
WITH_A_TOOL = ("approvals",)
BY_HAND = ("litellm", "codex", "claude-code", "cline", "continue", "aider")


@pytest.fixture(scope="module")
def started() -> Iterator[GatewayProcess]:
    """As `make run` starts it: no upstream, no keys, the demo model."""
    with running("") as process:
        yield process


def test_every_snippet_is_run() -> None:
    """And every client that the pages promise has its snippet."""
    assert set(SNIPPETS) == {START, *EVERY_CI_RUN, *WITH_A_TOOL, *BY_HAND}
    assert HELLO in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_gateway_starts_with_these_words(started: GatewayProcess) -> None:
    """But for the address, the folder and the number of the process."""
    [shown] = SNIPPETS[START]
    expected = shown.code.replace(ADDRESS, started.base_url.removeprefix("http://"))
    expected = expected.replace("/home/you/twolane", str(started.folder))
    assert started.stdout_text() == re.sub(r"process \d+", f"process {started.pid}", expected)


@pytest.mark.parametrize(
    "name", [*EVERY_CI_RUN, *(pytest.param(name, marks=pytest.mark.clients_all) for name in BY_HAND)]
)
def test_a_snippet_prints_what_the_page_says(name: str, started: GatewayProcess, tmp_path: Path) -> None:
    """With the real client; only the port is another one."""
    address = started.base_url.removeprefix("http://")
    for snippet in SNIPPETS[name]:
        if snippet.file is not None:
            save(snippet, home=tmp_path, address=address)
            continue
        printed = run(snippet, home=tmp_path, address=address)
        assert printed.replace(address, ADDRESS) == snippet.output


def test_a_snippet_asks_and_is_answered(tmp_path: Path) -> None:
    """The approval, with the configuration that stands above it and the folder that it names."""
    saved, snippet = SNIPPETS["approvals"]
    work = tmp_path / "work"
    work.mkdir()
    with running(saved.code.replace("./work", str(work))) as process:
        address = process.base_url.removeprefix("http://")
        assert run(snippet, home=tmp_path, address=address) == snippet.output
    assert (work / "note.txt").read_text() == "Hello"
