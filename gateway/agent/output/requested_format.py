"""Texts of models that have the format which a client wants already, as `response_format` describes it."""

from gateway.contracts.storage.store import Json
from gateway.jsontext import strict_json
from gateway.tools.schema import find_problem


def has_format(text: str, wanted: Json) -> bool:
    """Return whether a text is only JSON in this format; False for an unknown format."""
    try:
        value = strict_json.loads(text)
    except strict_json.StrictJsonError:
        return False
    if wanted.get("type") == "json_object":
        return isinstance(value, dict)
    described = wanted.get("json_schema")
    schema = described.get("schema") if wanted.get("type") == "json_schema" and isinstance(described, dict) else None
    if not isinstance(schema, dict):
        return False
    try:
        return find_problem(schema, value) is None
    except ValueError:  # the schema is none
        return False
