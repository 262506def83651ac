"""The README and docs/clients.md are true: each snippet runs as it stands there and prints what stands there."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gateway.testing.run import GatewayProcess
from tests.clients.conftest import running
from tests.clients.reader import Reader, banner_of
from tests.clients.snippets import ADDRESS, HELLO, Snippet, run, save, snippets_of
from tests.clients.worker import ROOT

pytestmark = pytest.mark.clients

README = tuple(snippets_of("README.md"))
CLIENTS = tuple(snippets_of("docs/clients.md"))
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
    """Those that the README promises are run as it prints them, and further ones as docs/clients.md does."""
    terminals, gateway = "clone activate", "curl configuration approvals health"
    clients = "openai-python openai-node ai-sdk codex claude-code cline continue"
    contexts = {"openai-python context", "openai-python context responses"}
    readme = {*terminals.split(), *gateway.split(), *clients.split(), "make run", *contexts}
    assert {snippet.name for snippet in README} == readme
    streams = {f"{name} stream" for name in ("openai-python", "openai-node", "ai-sdk")}
    libraries = "anthropic-python anthropic-node langchain-openai langchain-js langgraph instructor llm pydantic-ai"
    further = {*libraries.split(), *streams, "openai-python async", "openai-python responses"}
    assert {snippet.name for snippet in CLIENTS} == further | {"openai-agents", "litellm", "aider", "qwen-code"}
    assert HELLO in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=_marks(name) if name in LARGE else ())
        for name in dict.fromkeys(snippet.name for snippet in CLIENTS)
    ],
)
def test_a_snippet_prints_what_the_page_says(name: str, started: GatewayProcess, tmp_path: Path) -> None:
    """With the real client; only the port is another one."""
    address = started.base_url.removeprefix("http://")
    for snippet in CLIENTS:
        if snippet.name != name:
            continue
        if snippet.file is not None:
            save(snippet, home=tmp_path, address=address)
            continue
        printed = run(snippet, home=tmp_path, address=address)
        assert printed.replace(address, ADDRESS) == snippet.output


@pytest.mark.parametrize(
    "left_out",
    [
        pytest.param(LARGE, id="libraries"),
        pytest.param((), id="programs", marks=_marks("claude-code", "cline", "continue")),
    ],
)
def test_the_readme_from_top_to_bottom(left_out: tuple[str, ...], tmp_path: Path) -> None:
    """As printed, by a reader with a home, a clone and an environment of their own."""
    reader = Reader(tmp_path)
    clone, shown, *rest = README
    start = reader.clone(clone)
    at_approvals = next(at for at, snippet in enumerate(rest) if snippet.name == "approvals")
    with reader.running(start) as gateway:
        printed = banner_of(gateway, lines=len(shown.code.splitlines()))
        number = re.compile(r"process \d+")
        assert number.sub("", printed) == number.sub("", reader.here(shown.code).rstrip())
        _type(reader, rest[:at_approvals], left_out=left_out)
    reader.save(rest[at_approvals])
    with reader.running(start) as gateway:
        banner_of(gateway, lines=1)
        _type(reader, rest[at_approvals + 1 :], left_out=left_out)
    assert (reader.folder / "work/note.txt").read_text() == "Hello"


def _type(reader: Reader, snippets: Sequence[Snippet], *, left_out: tuple[str, ...]) -> None:
    for snippet in snippets:
        if snippet.name == "activate":
            reader.activate(snippet)
        elif snippet.file is not None:
            reader.save(snippet)
        elif snippet.name not in left_out:
            assert reader.type(snippet) == snippet.output, snippet.name
