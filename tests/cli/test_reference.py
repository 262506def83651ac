"""The generated page and the schema for editors."""

import json
from pathlib import Path

import pytest

from gateway.cli.reference import DOCUMENT, SCHEMA, build_documented_settings, main, render_document, render_schema
from gateway.config.schema.section import Section, is_section, strip

Settings = build_documented_settings()
ROOT = Path(__file__).resolve().parents[2]


def test_the_generated_files_are_up_to_date() -> None:
    """`python -m gateway.cli.reference` writes them."""
    assert (ROOT / DOCUMENT).read_text(encoding="utf-8") == render_document()
    assert (ROOT / SCHEMA).read_text(encoding="utf-8") == render_schema()


def test_reference_command_writes_and_checks_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--check` names what is out of date and writes nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    assert "docs/configuration.md and gateway.schema.json out of date" in str(main(["--check"]))
    assert not (tmp_path / SCHEMA).exists()
    assert main([]) is None and main(["--check"]) is None
    (tmp_path / SCHEMA).write_text("{}")
    assert main(["--check"]) == "gateway.schema.json out of date: run python -m gateway.cli.reference"


def _sections() -> set[type[Section]]:
    found: set[type[Section]] = set()
    waiting: list[object] = [Settings]
    while waiting:
        inner = strip(waiting.pop())
        if is_section(inner) and inner not in found:
            found.add(inner)
            waiting += [field.annotation for field in inner.model_fields.values()] + [inner.of_other_keys]
        else:
            waiting += [part for part in getattr(inner, "__args__", ()) if part is not Ellipsis]
    return found


def test_every_key_is_documented_in_one_sentence() -> None:
    """With its type and default, on the page and in the schema."""
    document = render_document()
    definitions = json.loads(render_schema())
    sections = _sections()
    assert len(sections) > 20
    for section in sections:
        described = definitions if section is Settings else definitions["$defs"][section.__name__]
        for name, field in section.model_fields.items():
            key = field.alias or name
            assert field.description and field.description.endswith("."), f"{section.__name__}.{name}"
            assert f"| {field.description} |" in document and f"| `{key}` |" in document
            assert described["properties"][key]["description"] == field.description


def test_documented_defaults_use_file_notation() -> None:
    """Durations, sizes and the address, not numbers and objects."""
    schema = json.loads(render_schema())
    limits = schema["$defs"]["LimitsSettings"]["properties"]
    assert (limits["head"]["default"], limits["drain"]["default"]) == ("32KiB", "30s")
    assert schema["properties"]["listen"]["default"] == "127.0.0.1:8080"
    assert schema["properties"]["store"]["default"] == "sqlite:///./gateway.db"
    document = render_document()
    for row in (
        "| `inline_wait` | duration | `2m` |",
        "| `first_byte` | duration | `10m` |",
        "| `write` | duration | `60s` |",
    ):
        assert row in document
    assert "***" not in json.dumps(schema) + document.partition("## Keys")[2]


def test_schema_accepts_the_same_configuration_as_the_loader() -> None:
    """Unknown keys are marked, plugins' tools, foreign MCP keys, empty sections and references are not."""
    schema = json.loads(render_schema())
    assert schema["additionalProperties"] is False
    tools = schema["$defs"]["Tools"]
    assert tools["additionalProperties"] == {"$ref": "#/$defs/PluginTool"}
    assert schema["$defs"]["McpServer"]["properties"]["autoApprove"]["deprecated"] is True
    assert {"type": "null"} in schema["properties"]["limits"]["anyOf"]
    assert {"type": "string", "pattern": r"\$\{"} in schema["properties"]["workers"]["anyOf"]
    assert {"type": "string", "pattern": r"\$\{"} in schema["$defs"]["LoggingSettings"]["properties"]["level"]["anyOf"]
