"""The configurations that pages of docs/ show pass `gateway check-config`, as they are printed.

A mark above a fence names them: `<!-- check: NAME -->`, or `<!-- check: NAME, with folders A B -->` where there are
those two. Of `with certificates A B` the first is the authority's, the second the gateway's with its key.
"""

import re
from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.testing.tls import self_signed

DOCS = Path(__file__).parent.parent / "docs"
_FENCE = re.compile(
    r"^<!-- check: (?P<name>[^,\n]+?)(?:, with (?P<kind>folders|certificates) (?P<there>[^\n]+?))? -->\n"
    r"```yaml\n(?P<text>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)
RECIPES = [(page.name, match) for page in sorted(DOCS.glob("*.md")) for match in _FENCE.finditer(page.read_text())]
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@pytest.mark.parametrize("recipe", [match for _, match in RECIPES], ids=[f"{page}: {m['name']}" for page, m in RECIPES])
def test_a_printed_configuration_is_right(
    recipe: re.Match[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, and nothing to mend; variables are set to a secret."""
    (tmp_path / "gateway.yaml").write_text(recipe["text"])
    there = [tmp_path / name for name in (recipe["there"] or "").split()]
    if recipe["kind"] == "certificates":
        (tmp_path / "made").mkdir()
        made = self_signed(tmp_path / "made")
        there[0].write_bytes(made.ca.read_bytes())
        there[1].write_bytes(made.client_cert.read_bytes() + made.client_key.read_bytes())
    else:
        for folder in there:
            folder.mkdir()
    for variable in _VARIABLE.findall(recipe["text"]):
        monkeypatch.setenv(variable, "0123456789abcdef0123456789abcdef")
    monkeypatch.chdir(tmp_path)
    code = main(["check-config"])
    assert code == 0, capsys.readouterr()


def test_recipes_are_found() -> None:
    """The pattern above reads the pages; a changed mark would leave it nothing to test."""
    assert {page for page, _ in RECIPES} >= {"cookbook.md", "tutorial.md"}
