"""Validation of a call's arguments against its tool's JSON Schema.

The validator is imported with the first call: 2 MB that a gateway whose models call nothing does without.
"""

from copy import deepcopy

from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolSpec
from gateway.tools.schema_check import SchemaCheck

#: Problems reported at once; a model corrects the first ones first.
PROBLEMS_LIMIT = 5


def with_defaults(schema: Json, arguments: Json) -> Json:
    """Return the arguments with the defaults of missing properties, also within objects that are present.

    A default of null means that there is none.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return arguments
    filled = dict(arguments)
    for name, about in properties.items():
        if not isinstance(about, dict):
            continue
        if name in filled:
            if isinstance(inner := filled[name], dict):
                filled[name] = with_defaults(about, inner)
        elif about.get("default") is not None:
            filled[name] = deepcopy(about["default"])
    return filled


class Schemas:
    """Compiled validators, one for each definition in use."""

    def __init__(self) -> None:
        self._compiled: dict[str, tuple[Json, SchemaCheck]] = {}

    def fill_defaults(self, spec: ToolSpec, arguments: Json) -> Json:
        """Return the arguments with the schema's defaults, or unchanged if the arguments with defaults do not fit."""
        filled = with_defaults(spec.parameters, arguments)
        return arguments if filled != arguments and self.find_problem(spec, filled) is not None else filled

    def find_problem(self, spec: ToolSpec, arguments: Json) -> str | None:
        """Return the problem of the arguments, for the model, or None. An invalid schema accepts nothing."""
        known = self._compiled.get(spec.name)
        if known is None or known[0] is not spec.parameters:
            try:
                check = _compile_check(spec.parameters)
            except ValueError as broken:
                return f"the definition of {spec.name!r} is broken: {broken}"
            known = self._compiled[spec.name] = spec.parameters, check
        return _format_problems(known[1], arguments)


def find_problem(schema: Json, arguments: Json) -> str | None:
    """Return the problem of arguments with a schema of our own, for the model, or None."""
    return _format_problems(_compile_check(schema), arguments)


def _format_problems(check: SchemaCheck, arguments: Json) -> str | None:
    return "; ".join(check.list_problems(arguments, most=PROBLEMS_LIMIT))[:2000] or None


def _compile_check(schema: Json) -> SchemaCheck:
    """Compile a schema, which may be untrusted: patterns match in linear time, and nothing is fetched."""
    from jsonschema_rs import RegexOptions, validator_for

    return SchemaCheck(schema, validator_for(schema, offline=True, pattern_options=RegexOptions()))
