"""The configurations that the README and pages of docs/ show pass `gateway check-config`, as they are printed.

A mark above a fence names them: `<!-- check: NAME -->`, or `<!-- check: NAME, with folders A B -->` where there are
those two. Of `with places A/ B` the first is a folder, the second an empty file. Of `with certificates A B` the first
is the authority's, the second the gateway's with its key.
"""

import re
from pathlib import Path

import aiohttp
import pytest
from certificates import self_signed

from gateway.cli.main import main
from gateway.testing.local_gateway import LocalGateway

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
CLIENTS = ROOT / "docs/clients.md"
#: The pages whose every block is tested, or named as what a test cannot run.
TESTED = [ROOT / "README.md", CLIENTS, ROOT / "docs/commands.md"]
_FENCE = re.compile(
    r"^<!-- check: (?P<name>[^,\n]+?)(?:, with (?P<kind>folders|places|certificates) (?P<there>[^\n]+?))? -->\n"
    r"```yaml\n(?P<text>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)
RECIPES = [(page.name, match) for page in PAGES for match in _FENCE.finditer(page.read_text())]
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@pytest.mark.parametrize("recipe", [match for _, match in RECIPES], ids=[f"{page}: {m['name']}" for page, m in RECIPES])
def test_documented_configuration_passes_check_config(
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
        for name, path in zip((recipe["there"] or "").split(), there, strict=True):
            path.touch() if recipe["kind"] == "places" and not name.endswith("/") else path.mkdir()
    for variable in _VARIABLE.findall(recipe["text"]):
        monkeypatch.setenv(variable, "0123456789abcdef" * 4)  # long enough for a SHA-256, too
    monkeypatch.chdir(tmp_path)
    code = main(["check-config"])
    assert code == 0, capsys.readouterr()


def test_recipes_are_found() -> None:
    """The pattern above reads the pages; a changed mark would leave it nothing to test."""
    assert {page for page, _ in RECIPES} >= {"README.md", "cookbook.md", "tutorial.md"}


def test_every_block_of_the_readme_is_tested() -> None:
    """A block without a mark could become wrong unseen; `text` is what the block above it prints."""
    marks = [
        mark for page in TESTED for mark in re.findall(r"^(.*)\n```(?!text\b)\w+\n", page.read_text(), re.MULTILINE)
    ]
    assert [mark for mark in marks if not re.fullmatch(r"<!-- (?:test|check|settings): .+ -->", mark)] == []
    assert len(marks) > 15


async def test_the_settings_of_open_webui_reach_the_gateway() -> None:
    """Open WebUI asks for the models below the base URL that it is given, then for a stream."""
    settings = re.search(
        r"^<!-- settings: Open WebUI -->\n```sh\n(.*?)^```\n", CLIENTS.read_text(), re.MULTILINE | re.DOTALL
    )
    assert settings is not None
    words = dict(word.partition("=")[::2] for word in settings[1].split())
    async with LocalGateway({}) as gateway, aiohttp.ClientSession() as session:
        base_url = words["OPENAI_API_BASE_URL"].replace("127.0.0.1:8080", f"127.0.0.1:{gateway.port}")
        headers = {"Authorization": f"Bearer {words['OPENAI_API_KEY']}"}
        async with session.get(f"{base_url}/models", headers=headers) as response:
            model = (await response.json())["data"][0]["id"]
        ask = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Say hello"}]}
        async with session.post(f"{base_url}/chat/completions", json=ask, headers=headers) as response:
            events = (await response.text()).split("\n\n")
    assert response.status == 200 and "data: [DONE]" in events
