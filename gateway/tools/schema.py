"""Validation of a call's arguments against its tool's JSON Schema."""

from copy import deepcopy

import jsonschema_rs

from gateway.contracts import Json, ToolSpec

#: Problems told at once; a model mends the first ones first.
PROBLEMS_LIMIT = 5
#: Patterns are matched in linear time: definitions may be a stranger's. `offline`: what they refer to is not fetched.
_LINEAR = jsonschema_rs.RegexOptions()


def with_defaults(schema: Json, arguments: Json) -> Json:
    """Returns the arguments with the defaults of the properties that are not there, also in objects that are.

    A default of null says that there is none.
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
        self._compiled: dict[str, tuple[Json, jsonschema_rs.Validator]] = {}

    def filled(self, spec: ToolSpec, arguments: Json) -> Json:
        """The arguments with the schema's defaults, unless these would not fit where the arguments alone do."""
        filled = with_defaults(spec.parameters, arguments)
        return arguments if filled != arguments and self.problem(spec, filled) is not None else filled

    def problem(self, spec: ToolSpec, arguments: Json) -> str | None:
        """What is wrong with the arguments, for the model, or None. A definition that is no schema accepts nothing."""
        known = self._compiled.get(spec.name)
        if known is None or known[0] is not spec.parameters:
            try:
                validator = jsonschema_rs.validator_for(spec.parameters, offline=True, pattern_options=_LINEAR)
            except ValueError as broken:
                return f"the definition of {spec.name!r} is broken: {broken}"
            known = self._compiled[spec.name] = spec.parameters, validator
        found = []
        for error in known[1].iter_errors(arguments):
            place = ".".join(map(str, error.instance_path))
            found.append(f"{place}: {error.message}" if place else error.message)
            if len(found) == PROBLEMS_LIMIT:
                break
        return "; ".join(found)[:2000] or None
