"""What a gateway prints at its start, and what it says of the model's word on risk wherever it says it."""

from pathlib import Path

import pytest

from gateway.cli.check_config import describe_config
from gateway.config import load
from gateway.server.banner import TRUST, iterate_banner_lines

ROOT = Path(__file__).parents[2]
ALWAYS = "A call that the model itself calls low in risk runs without asking. `risk: {trust_llm: never}` ends that."


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines(text: str | None) -> dict[str, str]:
    """The lines of the banner by their labels."""
    file = None
    if text is not None:
        file = Path("gateway.yaml")
        file.write_text(text)
    loaded = load(file, environ={}, flags={})
    said = list(iterate_banner_lines(loaded, url="http://127.0.0.1:1", admin_url="http://127.0.0.1:2"))
    return {line[:14].strip(): line[14:] for line in said}


def test_banner_shows_the_default_configuration() -> None:
    """Nothing is left to be guessed: no file, the tool to try, where the store is, and whose word counts."""
    said = lines(None)
    assert said["base URL"] == "http://127.0.0.1:1/v1" and said["context"] == "http://127.0.0.1:1/context/v1"
    assert said["config"].startswith("none") and said["tools"] == "demo_note"
    assert said["store"] == "sqlite:///./gateway.db"
    assert said["metrics"] == "http://127.0.0.1:2/metrics"
    assert said["trust"] == ALWAYS
    assert said["console"] == "http://127.0.0.1:2/console"


def test_banner_shows_the_console_url_unless_disabled() -> None:
    """As people open it, where that is configured; not at all where it is off."""
    assert lines("console: {url: https://gw.example}")["console"] == "https://gw.example/console"
    assert lines("public_url: https://gw.example/")["console"] == "https://gw.example/console"
    assert "console" not in lines("console: {enabled: false}")


def test_banner_shows_the_traces_endpoint_if_configured() -> None:
    """With the path that is added, and only if they go anywhere."""
    assert lines("tracing: {endpoint: 'http://127.0.0.1:4318'}")["traces"] == "http://127.0.0.1:4318/v1/traces"
    assert "traces" not in lines(None)


def test_banner_shows_file_tools_and_servers_and_hides_the_store_password(tmp_path: Path) -> None:
    """The file by its whole path; servers that are off are left out; no password of a store is shown."""
    said = lines(
        "tools: {http_request: {}, mine: {use: http_request}}\n"
        "mcp: {servers: {time: {command: uvx}, off: {command: uvx, enabled: false}}}\n"
        "store: postgresql://me:hunter2@db/gateway\n"
    )
    assert said["config"] == str(tmp_path / "gateway.yaml")
    assert said["tools"] == "http_request, mine, time (MCP, starting)"
    assert said["store"] == "postgresql://me@db/gateway"


@pytest.mark.parametrize("trust", ["always", "until_tainted", "never"])
def test_trust_setting_is_described_alike_at_start_and_check_config(trust: str) -> None:
    """By the start and by check-config."""
    text = f"risk: {{trust_llm: {trust}}}"
    assert lines(text)["trust"] == TRUST[trust]
    checked = list(describe_config(load(Path("gateway.yaml"), environ={}, flags={})))
    assert f"  trust       {TRUST[trust]}" in checked


@pytest.mark.parametrize("page", ["README.md", "docs/approvals.md"])
def test_documentation_states_model_trust_at_the_top_of_approvals(page: str) -> None:
    """In the same words, before anything else of approvals is explained."""
    text = (ROOT / page).read_text(encoding="utf-8")
    chapter = text.partition("\n## Approvals\n")[2] if page == "README.md" else text
    assert ALWAYS in " ".join(chapter.replace("*", "").split())[:500]
