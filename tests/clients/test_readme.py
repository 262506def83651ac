"""The README and two pages are true: each snippet runs as it stands there and prints what stands there."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.clients.conftest import running
from tests.clients.reader import Reader, banner_of
from tests.clients.snippets import ADDRESS, HELLO, Snippet, run, save, snippets_of
from tests.clients.worker import ROOT
from tests.support.gateway_process import GatewayProcess

pytestmark = pytest.mark.clients

README = tuple(snippets_of("README.md"))
CLIENTS = tuple(snippets_of("docs/clients.md"))
COMMANDS = tuple(snippets_of("docs/commands.md"))
PAGES = (*COMMANDS, *CLIENTS)
#: Programs that are too large for every CI run.
LARGE = ("litellm", "codex", "claude-code", "cline", "continue", "aider", "qwen-code")
#: Those with a row of their own in docs/clients.md.
PROGRAMS = {
    "claude-code": "Claude Code",
    "cline": "Cline",
    "continue": "Continue",
    "aider": "aider",
    "qwen-code": "Qwen Code",
}


def _marks(*names: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a test with large programs, a cell for each that has a row."""
    cells = [pytest.mark.cell("turn", row=PROGRAMS[name]) for name in names if name in PROGRAMS]
    return [pytest.mark.clients_all, *cells]


@pytest.fixture(scope="module")
def started() -> Iterator[GatewayProcess]:
    """As `make run` starts it: no upstream, no keys, the demo model."""
    with running("") as process:
        yield process


def test_every_client_has_its_snippet() -> None:
    """The snippets of docs/clients.md, README and docs/commands.md run as the pages print them."""
    assert {snippet.name for snippet in README} == {"clone", "make run", "activate", "curl", "approvals"}
    assert {snippet.name for snippet in COMMANDS} == {"configuration", "health"}
    clients = "openai-python openai-node ai-sdk codex claude-code cline continue openai-agents litellm aider qwen-code"
    contexts = {"openai-python context", "openai-python context responses"}
    streams = {f"{name} stream" for name in ("openai-python", "openai-node", "ai-sdk")}
    libraries = "anthropic-python anthropic-node langchain-openai langchain-js langgraph instructor llm pydantic-ai"
    further = {*libraries.split(), *streams, "openai-python async", "openai-python responses"}
    assert {snippet.name for snippet in CLIENTS} == {*clients.split(), *contexts, *further}
    assert HELLO in (ROOT / "docs/clients.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=_marks(name) if name in LARGE else ())
        for name in dict.fromkeys(snippet.name for snippet in PAGES)
    ],
)
def test_readme_snippet_prints_the_documented_output(name: str, started: GatewayProcess, tmp_path: Path) -> None:
    """With the real client; only the port is another one."""
    address = started.base_url.removeprefix("http://")
    for snippet in PAGES:
        if snippet.name != name:
            continue
        if snippet.file is not None:
            save(snippet, home=tmp_path, address=address)
            continue
        printed = run(snippet, home=tmp_path, address=address)
        assert printed.replace(address, ADDRESS) == snippet.output


def test_readme_commands_work_from_top_to_bottom(tmp_path: Path) -> None:
    """As printed, by a reader with a home, a clone and an environment of their own."""
    reader = Reader(tmp_path)
    clone, shown, *rest = README
    start = reader.clone(clone)
    at_approvals = next(at for at, snippet in enumerate(rest) if snippet.name == "approvals")
    with reader.running(start) as gateway:
        printed = banner_of(gateway, lines=len(shown.code.splitlines()))
        number = re.compile(r"process \d+")
        assert number.sub("", printed) == number.sub("", reader.here(shown.code).rstrip())
        _type(reader, rest[:at_approvals])
    reader.save(rest[at_approvals])
    with reader.running(start) as gateway:
        banner_of(gateway, lines=1)
        _type(reader, rest[at_approvals + 1 :])
    assert (reader.folder / "work/note.txt").read_text() == "Hello"


def _type(reader: Reader, snippets: Sequence[Snippet]) -> None:
    for snippet in snippets:
        if snippet.name == "activate":
            reader.activate(snippet)
        elif snippet.file is not None:
            reader.save(snippet)
        else:
            assert reader.type(snippet) == snippet.output, snippet.name
