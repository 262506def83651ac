"""Workflows that a message starts by name."""

import re
from collections.abc import Mapping

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.workflows.definition import Workflow
from gateway.workflows.parameters import ParameterError, read_arguments, validate_parameters

_CALL = re.compile(r"\s*+/([a-z][a-z0-9_-]{0,63}+)(?!\S)")


def check_parameters(workflow: Workflow, given: Json) -> Json:
    """Return the parameters of a run, with defaults. Raises GatewayError (invalid_parameters)."""
    try:
        return validate_parameters(given, workflow.build_schema())
    except ParameterError as error:
        raise GatewayError("invalid_parameters", str(error), param=error.name) from None


def build_workflow_usage(workflow: Workflow, parameters: Json) -> Json:
    """Return the value of `contracts.Exchange.workflow`: a run stores its workflow as it was."""
    return {"definition": workflow.build_definition(), "parameters": parameters}


def find_workflow_call(text: str, workflows: Mapping[str, Workflow]) -> tuple[Workflow, Json] | None:
    """Return the workflow that a chat message calls with its first word `/name`, and its parameters; None: no call.

    Raises GatewayError (invalid_parameters).
    """
    word = _CALL.match(text)
    workflow = None if word is None else workflows.get(word[1])
    if word is None or workflow is None:
        return None
    try:
        return workflow, read_arguments(text[word.end() :], workflow.build_schema())
    except ParameterError as error:
        raise GatewayError("invalid_parameters", str(error), param=error.name) from None
