"""The tool definitions of an MCP server, checked and cleaned, as far as a model may see them. Pure.

A server is untrusted: everything here is bounded. A tool that does not fit is left out with a reason, not repaired.
Only texts are changed: invisible characters are removed from descriptions, and long descriptions are cut.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jsonschema_rs
import orjson

from gateway.aio.cooperative import Work
from gateway.contracts.canonical_json import write_canonical
from gateway.contracts.storage.store import Json
from gateway.mcp.schemas.normal_form import build_normal_form
from gateway.mcp.schemas.patterns import PatternsError, Room, are_known, compile_validator, find_patterns
from gateway.mcp.schemas.references import find_reference_problem
from gateway.mcp.server_text import (
    LINE_CHARS,
    clean_description,
    format_one_line,
    parse_hints,
    parse_icons,
    remove_invisible,
)
from gateway.tools.schema_check import SchemaCheck

TOOLS_LIMIT: Final = 500
SCHEMA_BYTES: Final = 64 << 10
SCHEMA_DEPTH: Final = 32
#: Of all schemas of one server together.
SCHEMAS_BYTES: Final = 1 << 20

#: No spaces, quotes or signs: a name stands in prompts and in the text of a call.
_NAME: Final = re.compile(r"[\w./:-]{1,128}")
_HASHED: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
#: What is hashed, and shown to a person, but not used.
_BESIDE: Final = ("outputSchema", "annotations")
_SCHEMAS: Final = ("inputSchema", "outputSchema")
_DOMAIN: Final = b"twolane mcp tool 1\n"
_NAME_DOMAIN: Final = b"twolane mcp tool name 1\n"
_SENTENCE_END: Final = re.compile(r"(?<!\be\.g)(?<!\bi\.e)[.!?](?=\s+[^a-z\s]|\Z)|[。！？]")
#: Texts within a schema that are for a reader.
_PROSE: Final = ("title", "description", "$comment")


@dataclass(frozen=True, slots=True)
class Definition:
    """One tool. `line` is its description in one line; `sha256` (hex) is over the server's whole definition of it.

    `output_schema` and `annotations` are for a person who compares definitions; None: absent, or too large. `output`
    checks structured content by that schema; None: there is none that clients could use.
    """

    name: str
    description: str
    line: str
    parameters: Json
    sha256: str
    title: str = ""
    output_schema: Json | None = None
    annotations: Json | None = None
    icons: Sequence[Json] = ()  # shown to MCP clients only
    output: SchemaCheck | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Definitions:
    """The tools of one server by name, in its order, and a sentence on each omission."""

    tools: Mapping[str, Definition]
    left_out: tuple[str, ...] = ()


class _UnfitError(Exception):
    """The reason why a tool is left out."""


def read_definitions(tools: Sequence[Any]) -> Work[Definitions]:
    """Read the entries of `tools/list` as the server wrote them, of any shape, in parts: a schema may take long."""
    found: dict[str, Definition] = {}
    left_out: list[str] = []
    room_bytes = shown_bytes = SCHEMAS_BYTES
    room = Room()
    for place, tool in enumerate(tools[:TOOLS_LIMIT]):
        yield
        try:
            name = _check_name(tool)
            if name in found:
                raise _UnfitError("it is listed twice")
            schema, size_bytes = yield from _clean_schema(tool.get("inputSchema"), room_bytes=room_bytes, room=room)
        except _UnfitError as reason:
            left_out.append(f"the tool {format_shown_name(tool, place)} is left out: {reason}")
            continue
        room_bytes -= size_bytes
        description = clean_description(tool.get("description"))
        title = format_one_line(tool.get("title"))
        line = _take_first_sentence(description) or _take_first_sentence(title)
        beside: list[Json | None] = []
        for key in _BESIDE:
            yield
            part, size_bytes = _clean_object(tool.get(key), room_bytes=shown_bytes)
            shown_bytes -= size_bytes
            beside.append(part)
        icons, size_bytes = _select_icons(tool.get("icons"), room_bytes=shown_bytes)
        shown_bytes -= size_bytes
        yield
        output_schema, annotations = beside
        output = yield from _build_output_check(output_schema, room=room)
        found[name] = Definition(
            name,
            description,
            line,
            schema,
            hash_definition(tool),
            title,
            output_schema,
            annotations,
            icons,
            output,
        )
    if len(tools) > TOOLS_LIMIT:
        left_out.append(f"the list has {len(tools):,} tools: all after the first {TOOLS_LIMIT} are left out")
    return Definitions(found, tuple(left_out))


def hash_definition(tool: Json) -> str:
    """Return the SHA-256 (hex) of a server's definition of a tool.

    Definitions that differ in the spelling of their schemas only have one hash, as have a missing field and `null`.
    """
    said = {key: tool[key] for key in _HASHED if tool.get(key) is not None}
    said |= {key: _normalize_schema(said[key]) for key in _SCHEMAS if key in said}
    return hashlib.sha256(_DOMAIN + write_canonical(said).encode("utf-8", "surrogatepass")).hexdigest()


def hash_name(tool: str) -> str:
    """Return the SHA-256 (hex) that pins a tool by its name only."""
    return hashlib.sha256(_NAME_DOMAIN + tool.encode()).hexdigest()


def format_shown_name(tool: Any, place: int) -> str:
    """Return the name of a tool of any shape for a message; `place` is its place in the list, from 0."""
    name = tool.get("name") if isinstance(tool, dict) else None
    return repr(remove_invisible(name[:128])) if isinstance(name, str) and name else f"number {place + 1}"


def build_document(tool: Definition) -> Json:
    """Return a definition as `ManagedService.document` describes it."""
    return {
        "description": tool.description,
        "parameters": tool.parameters,
        "title": tool.title or None,
        "output_schema": tool.output_schema,
        "annotations": tool.annotations,
    }


def build_client_fields(tool: Definition) -> Json:
    """Return a definition as `McpSource.get_client_fields` describes it."""
    said = {
        "title": tool.title,
        "outputSchema": tool.output_schema if tool.output is not None else None,
        "annotations": parse_hints(tool.annotations),
        "icons": tool.icons,
    }
    return {key: value for key, value in said.items() if value}


def find_output_problem(tool: Definition, structured: Any) -> str | None:
    """Return why structured content does not match the tool's output schema, or None."""
    if tool.output is None:
        return None
    if structured is None:
        return "there is none"
    found = tool.output.list_problems(structured, most=1)
    return format_one_line(found[0]) if found else None


def _normalize_schema(schema: Any) -> Any:
    """Return the normal form of a schema; one that is too large or too deep stays unchanged."""
    if not isinstance(schema, dict) or _is_too_deep(schema, SCHEMA_DEPTH):
        return schema
    try:
        return build_normal_form(schema) if len(orjson.dumps(schema)) <= SCHEMA_BYTES else schema
    except orjson.JSONEncodeError:
        return schema


def _check_name(tool: Any) -> str:
    """Return the valid name in a tool's definition. Raises _UnfitError."""
    if not isinstance(tool, dict):
        raise _UnfitError("its definition is no JSON object")
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or remove_invisible(name) != name:
        raise _UnfitError("its name is not 1 to 128 letters, digits and characters of ._-/:")
    return name


def _clean_schema(schema: Any, *, room_bytes: int, room: Room) -> Work[tuple[Json, int]]:
    """Return the cleaned schema and its size in bytes. Raises _UnfitError."""
    if not isinstance(schema, dict):
        raise _UnfitError("its schema is no JSON object")
    if schema.get("type", "object") != "object":
        raise _UnfitError("its schema is not of the type object")
    if _is_too_deep(schema, SCHEMA_DEPTH):
        raise _UnfitError(f"its schema is nested more than {SCHEMA_DEPTH} levels deep")
    try:
        size_bytes = len(orjson.dumps(schema))
    except orjson.JSONEncodeError:
        raise _UnfitError("its schema holds a number or a text that is no JSON") from None
    if size_bytes > SCHEMA_BYTES:
        raise _UnfitError(f"its schema has {size_bytes:,} bytes, which is more than {SCHEMA_BYTES:,}")
    if size_bytes > room_bytes:
        raise _UnfitError(f"the schemas of all tools have more than {SCHEMAS_BYTES:,} bytes together")
    yield
    cleaned: Json = _clean_prose({**schema, "type": "object"})
    yield
    yield from _compile_schema(cleaned, room)
    return cleaned, size_bytes


def _compile_schema(schema: Json, room: Room) -> Work[jsonschema_rs.Validator]:
    """Compile a schema that is small and flat enough. Raises _UnfitError."""
    if (problem := find_reference_problem(schema)) is not None:
        raise _UnfitError(problem)
    yield
    try:
        yield from room.take(schema)
        yield
        return compile_validator(schema)
    except PatternsError as error:
        raise _UnfitError(str(error)) from None
    except ValueError as broken:
        raise _UnfitError(f"its schema is broken: {format_one_line(str(broken))}") from None


def _clean_object(value: Any, *, room_bytes: int) -> tuple[Json | None, int]:
    """Return a cleaned object and its size in bytes; None: it is not an object, or too large, or not JSON."""
    if not isinstance(value, dict) or _is_too_deep(value, SCHEMA_DEPTH):
        return None, 0
    try:
        size_bytes = len(orjson.dumps(value))
    except orjson.JSONEncodeError:
        return None, 0
    if size_bytes > min(SCHEMA_BYTES, room_bytes):
        return None, 0
    cleaned: Json = _clean_prose(value)
    return cleaned, size_bytes


def _build_output_check(schema: Json | None, *, room: Room) -> Work[SchemaCheck | None]:
    """Return what checks content by an output schema; None if a client could not use that."""
    if schema is None:
        return None
    try:
        compiled = yield from _compile_schema(schema, room)
    except _UnfitError:
        return None
    yield
    return SchemaCheck(schema, compiled) if (yield from are_known(tuple(find_patterns(schema)))) else None


def _select_icons(value: Any, *, room_bytes: int) -> tuple[Sequence[Json], int]:
    """Return the icons that a client may load, and their size in bytes; none where they are too large."""
    icons = parse_icons(value)
    whole, size_bytes = _clean_object({"icons": icons}, room_bytes=room_bytes)
    return ([], 0) if whole is None or not icons else (whole["icons"], size_bytes)


def _is_too_deep(value: Any, limit: int) -> bool:
    """Return whether objects and lists are nested deeper than `limit`, `value` itself being the first level."""
    level = [value]
    for _ in range(limit):
        level = [inner for outer in level for inner in _list_nested_containers(outer)]
        if not level:
            return False
    return True


def _list_nested_containers(value: Any) -> Iterator[Any]:
    """Return the objects and lists directly within this one."""
    values = value.values() if isinstance(value, dict) else value
    return (inner for inner in values if isinstance(inner, dict | list))


def _clean_prose(value: Any) -> Any:
    """Return a copy of a schema whose prose has no invisible characters. The schema must be flat enough to recurse."""
    if isinstance(value, list):
        return [_clean_prose(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: remove_invisible(item) if key in _PROSE and isinstance(item, str) else _clean_prose(item)
        for key, item in value.items()
    }


def _take_first_sentence(text: str) -> str:
    """Return the first sentence of the first paragraph."""
    line = " ".join(text.strip().partition("\n\n")[0].split())
    end = _SENTENCE_END.search(line)
    line = line[: end.end()] if end else line
    return line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 1].rstrip() + "…"
