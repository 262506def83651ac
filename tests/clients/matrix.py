"""The clients that are tested, by situations: collected from the marker `cell`, and written as the table of the page.

`python -m tests.clients.matrix` writes the table of docs/clients.md; test_matrix.py compares it. A test says
`@pytest.mark.cell("turn")` where its parameter `client`, `name` or `row` is the client; else it says `row`, too. A
stream of a turn is the situation `stream`, and `approval` is the one that the parameter `decision` names.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.clients.page_table import PageTable, render
from tests.clients.worker import ROOT

TABLE: Final = PageTable(ROOT / "docs/clients.md", "tests.clients.matrix")
COLUMNS: Final = (
    "turn",
    "stream",
    "own tool",
    "mixed",
    "approve",
    "reject",
    "structured output",
    "error",
    "long history",
)
#: Each row as the page names it, and its clients in the tests.
ROWS: Final[Mapping[str, tuple[str, ...]]] = {
    "openai-python": ("python openai", "talk openai-python"),
    "openai-python `.stream()`": ("python openai .stream()", "talk openai-python .stream()"),
    "openai-python, asynchronous": ("python openai async", "talk openai-python async"),
    "openai-python, responses": ("python openai responses", "openai-python", "openai-python chained"),
    "anthropic-python": ("python anthropic", "talk anthropic-python", "talk anthropic-python runner"),
    "anthropic-python, asynchronous": ("python anthropic async", "talk anthropic-python async"),
    "langchain-openai": ("python langchain-openai", "talk langchain-openai"),
    "langchain-openai, asynchronous": ("python langchain-openai async", "talk langchain-openai async"),
    "langchain-openai, responses": ("langchain",),
    "langchain-anthropic": ("talk langchain-anthropic",),
    "langgraph": ("talk langgraph",),
    "openai-agents": ("talk openai-agents",),
    "openai-agents, responses": ("openai-agents", "openai-agents interrupted"),
    "pydantic-ai": ("python pydantic-ai", "talk pydantic-ai"),
    "pydantic-ai, messages": ("talk pydantic-ai messages",),
    "pydantic-ai, responses": (),
    "instructor": ("instructor text", "instructor rows", "instructor lookup"),
    "llm": ("python llm", "talk llm"),
    "openai-node": ("node openai", "talk openai-node"),
    "openai-node `.stream()`": ("node openai .stream()", "talk openai-node .stream()"),
    "openai-node, responses": ("node openai responses", "openai-node"),
    "@anthropic-ai/sdk": ("node anthropic", "talk anthropic-node", "talk anthropic-node runner"),
    "AI SDK": ("node ai-sdk", "talk ai-sdk"),
    "AI SDK, messages": ("talk ai-sdk messages",),
    "AI SDK, responses": ("ai-sdk", "ai-sdk unstored"),
    "@openai/agents": ("agents-js", "agents-js interrupted"),
    "@langchain/openai": ("node langchain", "talk langchain-js"),
    "@langchain/openai, responses": ("langchain-js",),
    "LiteLLM": ("litellm", "talk litellm"),
    "LiteLLM, messages": ("talk litellm messages",),
    "Codex": (),
    "Claude Code": (),
    "Cline": (),
    "Continue": (),
    "aider": (),
    "Qwen Code": (),
}
_ROW_OF: Final = {client: row for row, clients in ROWS.items() for client in clients}
#: Models for Anthropic's API in libraries that have one for OpenAI's, too.
_MESSAGES_OF_LIBRARIES: Final = (
    "langchain-anthropic",
    "pydantic-ai, messages",
    "AI SDK, messages",
    "LiteLLM, messages",
)
_CHAT: Final = "chat"
_ITS_OWN: Final = "its own"
_TERMINAL: Final = "terminal"
#: Cells that no test can have, with the word of the page (explained below the table).
NONE: Final[Mapping[str, Mapping[str, str]]] = {
    **dict.fromkeys(_MESSAGES_OF_LIBRARIES, dict.fromkeys(("structured output", "error", "long history"), _CHAT)),
    "instructor": dict.fromkeys(("own tool", "mixed"), _ITS_OWN),
    "aider": dict.fromkeys(("own tool", "mixed", "structured output"), _ITS_OWN),
    "Cline": {"structured output": _ITS_OWN, "long history": _TERMINAL},
    "Continue": {"structured output": _ITS_OWN},
}


class Cells:
    """The plugin of pytest that prints the cells of all tests that it collects, one a line."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for mark in item.iter_markers("cell"):
                for row, column in _cells(mark, getattr(item, "callspec", None)):
                    print(f"cell\t{row}\t{column}")


def _cells(mark: pytest.Mark, callspec: Any) -> Iterator[tuple[str, str]]:
    params = {} if callspec is None else callspec.params
    row = mark.kwargs.get("row") or params.get("row")
    row = row or _ROW_OF[mark.kwargs.get("prefix", "") + params.get("client", params.get("name"))]
    for column in mark.args:
        if column == "approval":
            column = params["decision"]
        yield row, "stream" if column == "turn" and params.get("stream") else column


def collected() -> set[tuple[str, str]]:
    """Return the row and the column of each cell that has a test."""
    program = (
        "import pytest, sys; from tests.clients.matrix import Cells; sys.exit(pytest.main(sys.argv[1:], [Cells()]))"
    )
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "clients", "tests/clients"]
    done = subprocess.run(
        [sys.executable, "-c", program, *options],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split("\t")[1:] for line in done.stdout.splitlines() if line.startswith("cell\t")]
    return {(row, column) for row, column in lines}


def table(cells: set[tuple[str, str]]) -> str:
    """Return the table of the page, a client in each row."""
    return render(["client", *COLUMNS], *([row, *(_word(cells, row, column) for column in COLUMNS)] for row in ROWS))


def _word(cells: set[tuple[str, str]], row: str, column: str) -> str:
    return "yes" if (row, column) in cells else NONE.get(row, {}).get(column, "")


if __name__ == "__main__":
    TABLE.write(table(collected()))
