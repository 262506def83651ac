"""The values of a workflow in a path: no value climbs out of the folder in which its reference stands.

A value may name a file in a folder below, as `2024/may`. A path that begins with a reference is the author's choice:
the tool's own folder limits it.
"""

from collections.abc import Sequence

from gateway.plugin.templates import TemplateValue

_UP = ".."


def build_path(pieces: Sequence[str | TemplateValue]) -> str:
    """Return the path. Raises ValueError for a value that climbs, or ends the path."""
    path, meant = "", ""
    for piece in pieces:
        if isinstance(piece, str):
            path, meant = path + piece, meant + piece
            continue
        if "\0" in piece.text:
            raise ValueError(f"the value of {{{{{piece.name}}}}} holds a NUL, which no path can")
        path, meant = path + piece.text, meant + "x"
        if path.startswith("/") and not meant.startswith("/"):
            raise ValueError(f"the value of {{{{{piece.name}}}}} makes the path an absolute one")
    if path.split("/").count(_UP) > meant.split("/").count(_UP):
        names = ", ".join(f"{{{{{piece.name}}}}}" for piece in pieces if isinstance(piece, TemplateValue))
        raise ValueError(f"the value of {names} leads out of its place in the path")
    return path
