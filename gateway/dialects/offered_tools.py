"""The names of the gateway's tools: clients know a label and a short name, and models one name."""

from typing import Final

from gateway.contracts.tools import encode_model_name

#: The label of the gateway's own tools, among the labels of its services.
GATEWAY: Final = "gateway"


def split_tool_name(tool: str, service: str | None) -> tuple[str, str]:
    """Return the label and the name of a tool as clients know them; within a service, tools have short names."""
    return (GATEWAY, tool) if service is None else (service, tool.removeprefix(f"{service}."))


def build_tool_name(label: str, name: str) -> str:
    """Return the name that models know for a tool of the gateway, by the label and the name that clients know."""
    return name if label == GATEWAY else encode_model_name(f"{label}.{name}")
