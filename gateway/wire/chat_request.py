"""What several stages ask of a chat completion request: which tools its client brought, and whether it wants text."""

from collections.abc import Mapping


def client_tools(body: Mapping[str, object]) -> frozenset[str]:
    """The names of the tools that the client brought; whatever is no tool with a name counts as none."""
    brought = body.get("tools")
    functions = (
        [tool.get("function") for tool in brought if isinstance(tool, dict)] if isinstance(brought, list) else []
    )
    return frozenset(name for f in functions if isinstance(f, dict) and isinstance(name := f.get("name"), str))


def wants_text(body: Mapping[str, object]) -> bool:
    """Whether the answer is to be text; an answer in another format is the client's, and runs without our tools."""
    wanted = body.get("response_format")
    return wanted is None or (isinstance(wanted, dict) and wanted.get("type") == "text")
