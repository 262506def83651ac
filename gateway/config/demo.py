"""The tools of a first visit: they are on as long as neither upstreams nor tools are configured."""

from collections.abc import Collection
from typing import Final

from gateway.config.document import Document
from gateway.plugins import list_built_in_plugins

#: The names of these tools begin with it.
PREFIX: Final = "demo_"
#: The category of workflows that are for a first visit only.
CATEGORY: Final = "demo"


def add_demo_tools(document: Document) -> None:
    """Turn the tools on, unless the file, a variable or a flag configures upstreams or tools."""
    if document.get("upstreams") or document.get("tools") is not None:
        return
    for name in list_built_in_plugins("tools"):
        if name.startswith(PREFIX):
            document.put(("tools", name), {}, place=document.locate(()))


def is_demo_workflow(category: str, called: Collection[str], *, tools: Collection[str]) -> bool:
    """Return whether a demo workflow calls a demo tool that is off."""
    return category == CATEGORY and any(tool.startswith(PREFIX) and tool not in tools for tool in called)
