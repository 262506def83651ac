"""Write docs/configuration.md and gateway.schema.json from the models (`python -m gateway.cli.reference`)."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import Field, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import PydanticUndefined

from gateway.cli import templates
from gateway.config.schema.context import DEFAULT_CHAINS, DEFAULT_PROMPTS
from gateway.config.schema.mcp import FOREIGN_MCP_KEYS
from gateway.config.schema.section import Section, accepts_null, is_collection, is_section, strip
from gateway.config.schema.settings import Settings
from gateway.config.schema.tools import ToolsSettings, find_built_in_settings
from gateway.config.values.secret import Secret
from gateway.config.values.value import REFERENCE, JsonObject, PathLeaf, ValueType
from gateway.plugins import list_built_in_plugins
from gateway.workflows.definition import Workflow, WorkflowParameter, WorkflowStep

DOCUMENT = Path("docs/configuration.md")
SCHEMA = Path("gateway.schema.json")

_TEMPLATES = resources.files(templates)
_WORKFLOW_PARTS: Mapping[str, type[Section]] = {
    "A workflow": Workflow,
    "`parameters.<name>`": WorkflowParameter,
    "`steps[]`, each with one of `tool`, `model` and `prompt`": WorkflowStep,
}


class _EditorSchema(GenerateJsonSchema):
    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Ignore the warning: `_complete` writes the defaults that pydantic cannot."""
        if kind != "non-serializable-default":
            super().emit_warning(kind, detail)


def render_document() -> str:
    """Return the text of docs/configuration.md."""
    parts = [_TEMPLATES.joinpath("configuration.md").read_text("utf-8")]
    for path, section in _iterate_sections("", build_documented_settings()):
        heading = f"### `{path}`" if path else "### At the top"
        parts.append(
            "\n".join([heading, "", *_describe_section(section), *_format_table(section), *_describe_extras(path)])
            + "\n"
        )
    return "\n".join(parts)


def render_schema() -> str:
    """Return the text of gateway.schema.json."""
    documented = build_documented_settings()
    schema = documented.model_json_schema(schema_generator=_EditorSchema)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "gateway.yaml"
    definitions: dict[str, JsonObject] = {"Settings": schema, **schema["$defs"]}
    for _, section in _iterate_sections("", documented):
        _complete(definitions[section.__name__], section)
    for name in sorted(FOREIGN_MCP_KEYS):
        ignored = {"description": "Ignored: a key of another program.", "deprecated": True}
        definitions["McpServer"]["properties"][name] = ignored
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str]) -> str | None:
    """Write both files below the current folder; with `--check` report instead whether they are out of date."""
    texts = {DOCUMENT: render_document(), SCHEMA: render_schema()}
    if "--check" not in arguments:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        return None
    stale = [str(path) for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    return f"{' and '.join(stale)} out of date: run python -m gateway.cli.reference" if stale else None


def build_documented_settings() -> type[Section]:
    """Return the settings with a field for each built-in tool, as its plugin declares it."""
    tools: dict[str, Any] = {}
    for name in list_built_in_plugins("tools"):
        if (config := find_built_in_settings(name)) is not None:
            section = create_model(name.title().replace("_", ""), __base__=config)
            section.__doc__ = None
            tools[name] = section | None, Field(default=None, description=f"{config.__doc__}")
    below = create_model("Tools", __base__=ToolsSettings, __doc__=ToolsSettings.__doc__, **tools)
    field = Field(default_factory=below, description=Settings.model_fields["tools"].description)
    return create_model("Settings", __base__=Settings, __doc__=Settings.__doc__, tools=(below, field))


def _iterate_sections(path: str, section: type[Section]) -> Iterator[tuple[str, type[Section]]]:
    """Yield a section and the sections below it, in the order of the file, with their paths for people."""
    yield path, section
    for key, field in _iterate_fields(section):
        below = f"{path}.{key}" if path else key
        inner = strip(field.annotation)
        while get_origin(inner) in (Mapping, tuple):
            is_list = get_origin(inner) is tuple
            below, inner = (f"{below}[]" if is_list else f"{below}.<name>"), strip(get_args(inner)[0 if is_list else 1])
        if is_section(inner):
            yield from _iterate_sections(below, inner)
    if section.of_other_keys is not None:
        yield from _iterate_sections(f"{path}.<name>", section.of_other_keys)


def _iterate_fields(section: type[Section]) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in section.model_fields.items():
        yield field.alias or name, field


def _describe_section(section: type[Section]) -> list[str]:
    return [section.__doc__.strip(), ""] if section.__doc__ else []


def _format_table(section: type[Section]) -> Iterator[str]:
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    for key, field in _iterate_fields(section):
        yield (
            f"| `{key}` | {_format_type(field.annotation, *field.metadata)} | {_format_default(field)} | "
            f"{field.description} |"
        )


def _describe_extras(path: str) -> list[str]:
    """Describe what a table cannot show: entries that exist undeclared, keys that are ignored."""
    if path == "mcp.servers.<name>":
        keys = ", ".join(f"`{key}`" for key in sorted(FOREIGN_MCP_KEYS))
        return ["", f"Keys of other programs are ignored with a warning: {keys}."]
    if path == "workflows":
        parts = (["", f"{title}:", "", *_format_table(part)] for title, part in _WORKFLOW_PARTS.items())
        text = _TEMPLATES.joinpath("workflows.md").read_text("utf-8")
        return ["", text.rstrip(), *chain.from_iterable(parts)]
    defaults = {"prompts.<name>": {"prompts": DEFAULT_PROMPTS}, "chains.<name>[]": {"chains": DEFAULT_CHAINS}}
    if path not in defaults:
        return []
    text = yaml.safe_dump(defaults[path], sort_keys=False)
    return ["", "There without being declared:", "", "```yaml", text + "```"]


def _format_type(annotation: object, *metadata: object) -> str:
    """Return the type in words: `duration`, `list of path prefixes`, `one of ...`."""
    if get_origin(annotation) is Annotated:
        annotation, *metadata_of_annotation = get_args(annotation)
        return _format_type(annotation, *metadata_of_annotation)
    if accepts_null(annotation) and get_origin(annotation) is not Literal:
        return f"{_format_type(next(part for part in get_args(annotation) if part is not NoneType))} or null"
    for fact in metadata:
        if isinstance(fact, ValueType | PathLeaf):
            return fact.kind
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        return f"list: {_format_type(get_args(annotation)[0])}"
    if get_origin(annotation) is Mapping:
        return f"by name: {_format_type(get_args(annotation)[1])}"
    return "section" if is_section(annotation) else "anything"


def _format_default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is PydanticUndefined:
        return "`{}`"
    return f"`{_format_plain_default(field.default, field)}`"


def _format_plain_default(value: object, field: FieldInfo) -> str:
    """Return a default as it would stand in the file; the default of a secret is none."""
    if isinstance(value, Secret):
        return value.reveal()
    write = _find_writer(field)
    if write and value is not None:
        return str(write(value))
    return str(value) if isinstance(value, Path | str) else json.dumps(value, default=str)


def _find_writer(field: FieldInfo) -> Callable[[Any], object] | None:
    return next((fact.write for fact in field.metadata if isinstance(fact, ValueType)), None)


def _complete(schema: JsonObject, section: type[Section]) -> None:
    """Add what editors need beyond pydantic's schema: references, empty sections, defaults as they are written."""
    for key, field in _iterate_fields(section):
        known: JsonObject = schema["properties"][key]
        known.pop("title", None)
        if get_origin(strip(field.annotation)) is Literal:
            null = [{"type": "null"}] if accepts_null(field.annotation) else []
            for name in ("type", "enum", "anyOf"):
                known.pop(name, None)
            choices = list(get_args(strip(field.annotation)))
            known["anyOf"] = [{"enum": choices}, {"type": "string", "pattern": REFERENCE}, *null]
        if (_find_writer(field) or isinstance(field.default, Secret)) and not field.is_required():
            known["default"] = _format_plain_default(field.default, field)
        if is_collection(field.annotation) and not field.is_required() and not accepts_null(field.annotation):
            facts = {name: known.pop(name) for name in ("description", "default") if name in known}
            schema["properties"][key] = facts | {"anyOf": [known, {"type": "null"}]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
