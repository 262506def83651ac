"""X-Context-Tools: the names and globs that narrow the tools of one request."""

from collections.abc import Collection
from fnmatch import fnmatchcase

from gateway.errors import GatewayError

#: Names that an error shows.
_SHOWN = 50


def narrowed(text: str, known: Collection[str]) -> tuple[str, ...]:
    """The names and globs of the header. Raises GatewayError (invalid_header) for one that fits no tool.

    `known` are the names of all tools; one that ends with `.*` stands for the tools of a service that does not run.
    """
    wanted = tuple(name.strip() for name in text.split(","))
    for name in wanted:
        if not any(_fits(name, tool) for tool in known):
            there_are = ", ".join(sorted(known)[:_SHOWN]) or "none"
            raise GatewayError(
                "invalid_header", f"There is no tool {name!r}; there are: {there_are}.", param="x-context-tools"
            )
    return wanted


def _fits(name: str, tool: str) -> bool:
    return fnmatchcase(tool, name) or (tool.endswith(".*") and name.startswith(tool[:-1]))
