"""`gateway init`: a commented gateway.yaml to begin with."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.cli.commands import DEFAULT_FILE, Commands, add_printing, write_new

#: In the package where it is installed, in the folder above in a checkout.
_PLACES: Final = (Path(__file__).parent.with_name("gateway.yaml"), Path(__file__).parent.parent.parent / "gateway.yaml")
_SCHEMA: Final = "# yaml-language-server:"


def add(commands: Commands) -> None:
    """Add `gateway init`."""

    def init(args: argparse.Namespace) -> Iterator[str]:
        return write_configuration(args.config or DEFAULT_FILE)

    add_printing(
        commands, "init", init, "write a commented configuration to begin with", example="gateway init -c gateway.yaml"
    )


def write_configuration(file: Path) -> Iterator[str]:
    """Write the commented configuration of a new gateway; return lines for a person.

    Raises CommandError if the file is there already, or cannot be written.
    """
    template = next(place for place in _PLACES if place.is_file()).read_text(encoding="utf-8")
    if template.startswith(_SCHEMA):  # the schema stays where the template is
        template = template.partition("\n#\n")[2]
    write_new(file, template)
    yield f"wrote {file}"
    yield ""
    yield "It is complete as it is: the built-in demo model answers, without a key and without a network."
    yield f"Next: name your provider below 'upstreams' in it, then `gateway check-config -c {file}` and"
    yield f"`gateway run -c {file}`."
