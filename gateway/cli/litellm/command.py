"""`gateway import litellm`: a gateway.yaml made of the configuration of a LiteLLM proxy."""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gateway.approvals.escaping import escape_line
from gateway.cli.commands import CommandError, Commands, add_group, add_printing, write_new
from gateway.cli.litellm.translation import translate_config

_MOST_BYTES = 1 << 20


class _Writer(yaml.SafeDumper):
    """A writer that repeats a part which stands in two places, where YAML would refer to the first one."""

    def ignore_aliases(self, data: object) -> bool:
        """Return whether a value is written anew."""
        del data
        return True


class _RepeatedKeyError(ValueError):
    """A key is there twice in one section."""


class _Reader(yaml.SafeLoader):
    """A reader that refuses a key which a section has twice. YAML would take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the section. Raises _RepeatedKeyError."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise _RepeatedKeyError(
                        f"has the key {escape_line(key.value)} twice, again at line {line}: keep one"
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def add(commands: Commands) -> None:
    """Add `gateway import` and the command below it."""
    group = add_group(commands, "import", "make a configuration of that of another program")
    p = add_printing(
        group,
        "litellm",
        _import,
        "make a gateway.yaml of a LiteLLM proxy's config.yaml",
        example="gateway import litellm config.yaml -o gateway.yaml",
    )
    p.add_argument("file", type=Path, metavar="CONFIG", help="configuration of the LiteLLM proxy")
    p.add_argument("-o", "--output", type=Path, metavar="FILE", help="file to write (default: standard output)")


def _import(args: argparse.Namespace) -> Iterator[str]:
    text, notes = import_config(args.file, os.environ)
    if args.output is None:
        yield text.rstrip()
    else:
        write_new(args.output, text)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if args.output is not None:
        yield f"wrote {args.output}"
        yield f"Next: read the notes in it, then `gateway check-config -c {args.output}`."


def import_config(file: Path, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the text of a gateway.yaml, and its notes. Raises CommandError if the file cannot be read."""
    told = translate_config(_read_config(file), environ)
    head = [f"# Made by `gateway import litellm` of {escape_line(file.name)}."]
    if told.notes:
        head += ["# Not translated, or different:", *(f"# - {note}" for note in told.notes)]
    written = yaml.dump(
        told.data, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None
    )
    return "\n".join([*head, "", written]), told.notes


def _read_config(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{str(file)!r} cannot be read: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise CommandError(f"{str(file)!r} has more than {_MOST_BYTES} bytes: it is no configuration")
    try:
        config = yaml.load(content, Loader=_Reader)  # noqa: S506 - a safe one
    except _RepeatedKeyError as error:
        raise CommandError(f"{str(file)!r} {error}") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        raise CommandError(f"{str(file)!r} is no YAML{place}") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_list"), list):
        raise CommandError(f"{str(file)!r} is no configuration of a LiteLLM proxy: it has no list 'model_list'")
    return config
