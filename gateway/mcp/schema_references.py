"""The references within a JSON Schema of a stranger: all must lead to places in the same schema, and none in a circle.

Nothing is ever fetched: a schema that refers to anything else is refused before it is compiled.
"""

from typing import Any, Final
from urllib.parse import unquote

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_SHOWN_CHARS: Final = 200


def problem_of_references(schema: dict[str, Any]) -> str | None:
    """Return the problem of the references in a schema, or None. Linear in its size; it may be nested to any depth."""
    anchors = _anchors(schema)
    entered: set[int] = set()
    left: set[int] = set()
    # Depth first along what contains and what refers: containment alone is a tree, so a circle goes over a reference.
    stack: list[tuple[Any, bool]] = [(schema, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            left.add(id(node))
            continue
        if id(node) in left:
            continue
        if id(node) in entered:
            return "its schema refers to itself in a circle"
        entered.add(id(node))
        stack.append((node, True))
        for key, value in _entries(node):
            inner = value
            if key in _REFERENCES and isinstance(value, str):
                inner = _target(schema, value, anchors)
                if inner is None:
                    return _refused(value)
            if isinstance(inner, dict | list):
                stack.append((inner, False))
    return None


def _entries(node: Any) -> list[tuple[str, Any]]:
    return list(node.items()) if isinstance(node, dict) else [("", item) for item in node]


def _anchors(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the places that have names of their own, by name."""
    found: dict[str, Any] = {}
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        for key, value in _entries(node):
            if key in ("$anchor", "$dynamicAnchor") and isinstance(value, str):
                found.setdefault(value, node)
            if isinstance(value, dict | list):
                stack.append(value)
    return found


def _target(schema: dict[str, Any], reference: str, anchors: dict[str, Any]) -> Any:
    """Return the target of a reference (RFC 6901 in a fragment); None: it is outside of the schema, or nowhere."""
    if not reference.startswith("#"):
        return None
    fragment = unquote(reference[1:])
    if fragment and not fragment.startswith("/"):
        return anchors.get(fragment)
    node: Any = schema
    for step in fragment.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(key)
        elif isinstance(node, list) and key.isascii() and key.isdigit() and len(key) < 9:
            node = node[int(key)] if int(key) < len(node) else None
        else:
            return None
    return node


def _refused(reference: str) -> str:
    shown = repr(reference[:_SHOWN_CHARS])
    if reference.startswith("#"):
        return f"its schema refers to {shown}, which is not in it"
    return f"its schema refers to {shown}, and nothing outside of a schema is ever fetched"
