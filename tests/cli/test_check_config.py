"""The output of `gateway check-config` for a good configuration."""

from pathlib import Path

import pytest

from gateway.cli.check_config import describe_config
from gateway.config import load

ALWAYS = "A call that the model itself calls low in risk runs without asking. `risk: {trust_llm: never}` ends that."


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines(text: str, **environ: str) -> list[str]:
    file = Path("gateway.yaml")
    file.write_text(text)
    return list(describe_config(load(file, environ=environ, flags={})))


def test_check_config_describes_the_default_configuration() -> None:
    """Everything in a few lines; options that are what a stage assumes anyway are left out."""
    assert lines("") == [
        "gateway.yaml: ok",
        "  listen      127.0.0.1:8080, workers 1",
        "  upstreams   the built-in demo model",
        "  keys        none: loopback only",
        "  tools       demo_note",
        f"  trust       {ALWAYS}",
        "  services    none",
        "  workflows   none",
        "  store       sqlite:///./gateway.db",
        "  chain       assistant (default)",
        "              intent",
        "                memory",
        "                  prompt_enhancer",
        "                    agent_loop",
        "                      model",
    ]


def test_check_config_shows_how_services_are_pinned() -> None:
    """Where it is less than their definitions."""
    said = lines("mcp: {servers: {a: {command: x}, b: {command: x, pin: names}, c: {command: x, pin: none}}}\n")
    assert "  services    a, b (pinned by names), c (not pinned)" in said


def test_check_config_shows_chains_tools_and_store() -> None:
    """What is not the default: options, stages that may be skipped, tools that ask."""
    said = lines(
        "context: {chain: mine}\n"
        "chains:\n"
        "  mine:\n"
        "    - {use: intent, on_error: skip}\n"
        "    - {use: prompt_enhancer, with: {tools: false, mermaid: true, max_tokens: 8000}}\n"
        "tools: {http_request: {}, other: {use: http_request, requires_approval: true}}\n"
        "store: postgresql://me:hunter2@db/gateway\n"
    )
    assert "  tools       http_request, other (asks before every call)" in said
    assert "  store       postgresql://me@db/gateway" in said
    assert said[-4:] == [
        "  chain       mine (default)",
        "              intent (on_error: skip)",
        "                prompt_enhancer {tools: false, mermaid: true}",
        "                  model",
    ]


def test_no_secret_is_shown() -> None:
    """What a variable brought in stays hidden, and long options are cut."""
    text = "chains: {c: [{use: prompt_enhancer, with: {tools: false, custom_context: $TEXT}}]}"
    assert "                c" not in (said := "\n".join(lines(text.replace("$TEXT", "${TEXT}"), TEXT="hunter2")))
    assert "hunter2" not in said and 'custom_context: "***"' in said
    (stage,) = [line for line in lines(text.replace("$TEXT", "long " * 100)) if "prompt_enhancer {tools" in line]
    assert len(stage) < 150 and stage.endswith("...}")


def test_check_config_shows_start_warnings() -> None:
    """Below the tools, one line each."""
    file = Path("gateway.yaml")
    file.write_text("")
    said = list(describe_config(load(file, environ={}, flags={}), warnings=["one", "two"]))
    assert said[4:7] == ["  tools       demo_note", "  warning     one", "  warning     two"]
