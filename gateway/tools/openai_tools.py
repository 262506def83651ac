"""Our tools as the API's own `tools`, for models that call natively (`tool_format: native`)."""

from collections.abc import Container
from dataclasses import replace
from typing import Final

from gateway.contracts.exchange import Exchange
from gateway.contracts.risk import RISK_LEVEL, build_schema
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolSpec
from gateway.tools.catalog import Catalog

#: Of the description of a service's tool: a model pays for each character in each request.
DESCRIPTION_CHARS: Final = 2000


def build_native_tools(catalog: Catalog, exchange: Exchange, *, besides: Container[str]) -> list[Json]:
    """Return the definitions of tools that the client did not bring itself, each with the parameter `risk_level`.

    The model gets the parameters of a service's tool that the user's intent is about only after a call with wrong ones,
    and of a long description the beginning.
    """
    offered = catalog.get_offered(exchange)
    names = {spec.name for spec in offered}
    intended = (spec for spec in catalog.get_intended(exchange) if spec.name not in names)
    briefly = [
        replace(spec, description=_shorten_description(spec.description), parameters={"type": "object"})
        for spec in intended
    ]
    return [_build_native_tool(spec) for spec in (*offered, *briefly) if spec.name not in besides]


def _shorten_description(description: str) -> str:
    return description if len(description) <= DESCRIPTION_CHARS else description[:DESCRIPTION_CHARS].rstrip() + "…"


def _build_native_tool(spec: ToolSpec) -> Json:
    """Return a tool as a function of the API, with the parameter `risk_level` added."""
    parameters = spec.parameters
    properties = parameters.get("properties") or {}
    if RISK_LEVEL not in properties:
        parameters = {**parameters, "properties": {**properties, RISK_LEVEL: build_schema()}}
    function = {"name": spec.name, "description": spec.description, "parameters": parameters}
    return {"type": "function", "function": function}
