"""Calls of tools of the client's for which its API has nothing but certain arguments."""

from collections.abc import Mapping

from gateway.agent.output.tool_calls import CallGroup, MalformedCall, Outcome
from gateway.contracts.storage.store import Json
from gateway.tools.schema import find_problem


def reject_inexact_calls(found: Outcome, schemas: Mapping[str, Json]) -> Outcome:
    """Return an outcome, or what is wrong with a call in it that the client could not get as the model wrote it.

    `schemas` are the tools' schemas, by name. Such a call is never mended: a mended call is another action.
    """
    if not schemas or not isinstance(found, CallGroup):
        return found
    for call in found.calls:
        schema = schemas.get(call.tool)
        if schema is not None and (problem := find_problem(schema, call.parameters)) is not None:
            return MalformedCall(f"The arguments of {call.tool[:64]!r} do not fit: {problem}.")
    return found
