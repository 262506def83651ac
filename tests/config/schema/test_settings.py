"""The root of the configuration."""

import shutil
from pathlib import Path

from gateway.config import Address, Settings, load

HERE = Path(__file__).parent.parent


def test_root_defaults_match_the_contract() -> None:
    """Loopback, one worker, no upstream (the demo model), no keys, a store beside the file."""
    settings = Settings.model_validate({})
    assert settings.listen == Address("127.0.0.1", 8080)
    assert (settings.workers, settings.admin.listen, settings.upstreams, settings.keys) == (1, None, (), ())
    assert (settings.public_url, settings.allowed_hosts) == (None, ())
    assert settings.store.reveal() == "sqlite:///./gateway.db"
    assert settings.metrics.enabled is True
    assert settings.logging.model_dump() == {"level": "info", "format": "auto", "access": False}
    assert settings.workflows.folder == Path("workflows")
    assert settings == Settings()


def test_console_is_on_by_default_and_its_url_follows_public_url() -> None:
    """Its own URL stands above that of the gateway; without either, and with the console off, nothing links to it."""
    assert Settings().console.model_dump() == {"enabled": True, "url": None, "session": 43_200.0}
    public, own = "https://gw.example/x/", "https://console.example"
    for facts, url in (
        ({}, None),
        ({"public_url": public}, "https://gw.example/x/console"),
        ({"public_url": public, "console": {"url": own}}, "https://console.example/console"),
        ({"public_url": public, "console": {"enabled": False}}, None),
    ):
        assert Settings.model_validate(facts).console_url == url


def test_design_contract_example_loads_with_its_values(tmp_path: Path) -> None:
    """The whole example of the design, every section and every key, means what it says."""
    environ = {"OPENAI_API_KEY": "sk-1", "DOCS_TOKEN": "t"}
    folder = tmp_path / "data"
    shutil.copytree(HERE / "data", folder)
    (folder / "work").mkdir()
    (folder / "data.db").touch()
    settings = load(folder / "contract.yaml", environ=environ, flags={}).settings
    defaults = load(None, environ={}, flags={}).settings
    same = ("listen", "workers", "admin", "passthrough", "keys", "limits", "chains", "approvals", "store", "metrics")
    for name in (*same, "public_url", "allowed_hosts", "logging"):
        assert getattr(settings, name) == getattr(defaults, name), name
    (upstream,) = settings.upstreams
    assert upstream.api_key and upstream.api_key.reveal() == "sk-1"
    assert settings.tools.plugins["my_tool"].use == "my_tool"
    assert settings.risk.assessors["my_tool"].use == "my_assessor"
    assert settings.mcp.servers["time"].trigger_keywords == ("几点", "timezone")
    assert settings.mcp.servers["docs"].headers["Authorization"].reveal() == "Bearer t"
    assert settings.prompts["reviewer"].file == folder / "prompts" / "reviewer.md"
