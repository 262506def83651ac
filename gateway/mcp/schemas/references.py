"""The references within an untrusted JSON Schema: all must lead to places in the same schema, and none in a circle.

Nothing is ever fetched: a schema that refers to anything else is refused before it is compiled. So is one that is small
only as long as its references are not followed: a compiler and a validator follow them, each as often as it is met.
"""

from typing import Any, Final

from gateway.tools.schema_check import resolve_fragment

#: Objects and lists of a schema, with a copy of its target in the place of each reference. What stands beneath
#: `unevaluated...` counts once more: it is compiled once more.
UNFOLDED_LIMIT: Final = 10_000
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
#: In the schema itself these count only where they are referred to.
_DEFINITIONS: Final = ("$defs", "definitions")
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
_SHOWN_CHARS: Final = 200


class _RefusedError(Exception):
    """The problem of the references in a schema."""


def find_reference_problem(schema: dict[str, Any]) -> str | None:
    """Return the problem of the references in a schema, or None. Linear in its size; it may be nested to any depth."""
    try:
        unfolded = _count_unfolded(schema, find_anchors(schema))
    except _RefusedError as refused:
        return str(refused)
    if unfolded > UNFOLDED_LIMIT:
        return f"its schema has more than {UNFOLDED_LIMIT:,} parts, those that it refers to included"
    return None


def _count_unfolded(schema: dict[str, Any], anchors: dict[str, Any]) -> int:
    """Return the number of parts with all references written out. Raises _RefusedError."""
    entered: set[int] = set()
    parts: dict[int, int] = {}  # of what is left for good
    again: dict[int, int] = {}
    # Depth first along what contains and what refers: containment alone is a tree, so a circle goes over a reference.
    stack: list[tuple[Any, list[Any] | None]] = [(schema, None)]
    while stack:
        node, inside = stack.pop()
        if inside is not None:
            parts[id(node)] = 1 + sum(parts[id(inner)] for inner in inside)
            repeated = parts[id(node)] if isinstance(node, dict) and any(key in node for key in _UNEVALUATED) else 0
            again[id(node)] = repeated + sum(again[id(inner)] for inner in inside)
            continue
        if id(node) in parts:
            continue
        if id(node) in entered:
            raise _RefusedError("its schema refers to itself in a circle")
        entered.add(id(node))
        counted: list[Any] = []
        stack.append((node, counted))
        for key, value in _list_entries(node):
            inner = (
                resolve_reference(schema, value, anchors) if isinstance(value, str) and key in _REFERENCES else value
            )
            if isinstance(inner, dict | list):
                stack.append((inner, None))
                if node is not schema or key not in _DEFINITIONS:
                    counted.append(inner)
    return parts[id(schema)] + again[id(schema)]


def _list_entries(node: Any) -> list[tuple[str, Any]]:
    return list(node.items()) if isinstance(node, dict) else [("", item) for item in node]


def find_anchors(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the places that have names, by name. Raises _RefusedError where a reference has two targets.

    A part with its own base (`$id`, in draft 4 `id`) beside references is refused: there `#` is another place.
    """
    found: dict[str, Any] = {}
    within: set[str] = set()  # the keys of texts; of the schema's own keys, only references
    is_draft_4 = False
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        for key, value in _list_entries(node):
            if isinstance(value, dict | list):
                stack.append(value)
            elif isinstance(value, str):
                if key in _ANCHORS and found.setdefault(value, node) is not node:
                    raise _RefusedError(f"its schema has two parts of the name {value[:_SHOWN_CHARS]!r}")
                is_draft_4 = is_draft_4 or (key == "$schema" and "draft-04" in value)
                if key in _REFERENCES or node is not schema:
                    within.add(key)
    if not within.isdisjoint(_REFERENCES) and ("$id" in within or (is_draft_4 and "id" in within)):
        raise _RefusedError("its schema has references, and parts with an $id of their own")
    return found


def resolve_reference(schema: dict[str, Any], reference: str, anchors: dict[str, Any]) -> Any:
    """Return the target of a reference (RFC 6901 in a fragment). Raises _RefusedError: it is outside, or nowhere."""
    found = resolve_fragment(schema, reference[1:], anchors) if reference.startswith("#") else None
    if found is None:
        raise _RefusedError(_describe_refusal(reference))
    return found


def _describe_refusal(reference: str) -> str:
    shown = repr(reference[:_SHOWN_CHARS])
    if reference.startswith("#"):
        return f"its schema refers to {shown}, which is not in it"
    return f"its schema refers to {shown}, and nothing outside of a schema is ever fetched"
