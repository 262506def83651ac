"""docs/responses.md is true: each snippet runs as it stands there and prints what stands there."""

from pathlib import Path

import pytest

from tests.clients.conftest import running
from tests.clients.snippets import run, snippets_of

pytestmark = pytest.mark.clients

SNIPPETS = {snippet.name: snippet for snippet in snippets_of("docs/responses.md")}


def test_responses_page_has_its_snippets() -> None:
    assert SNIPPETS.keys() == {"responses approval", "responses background"}


@pytest.mark.parametrize("name", SNIPPETS)
def test_responses_snippet_prints_the_documented_output(name: str, tmp_path: Path) -> None:
    """With openai-python and the configuration that the page names."""
    (work := tmp_path / "work").mkdir()
    with running(f"tools: {{file_operations: {{roots: [{work}], write: true}}}}\n") as gateway:
        address = gateway.base_url.removeprefix("http://")
        assert run(SNIPPETS[name], home=tmp_path, address=address) == SNIPPETS[name].output
