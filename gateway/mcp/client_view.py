"""The side of a service that MCP clients of the gateway see: what its server wrote of a tool, prompts, resources."""

from typing import Protocol, runtime_checkable

from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ServiceSource


@runtime_checkable
class McpSource(ServiceSource, Protocol):
    """A service whose server speaks MCP."""

    def get_client_fields(self, tool: str) -> Json:
        """Return the server's further words on a tool, as far as there are: title, outputSchema, annotations, icons."""
        ...

    def offers(self, kind: str) -> bool:
        """Return whether the running server offers this kind of things: `prompts` or `resources`."""
        ...

    async def ask(self, method: str, params: Json) -> Json:
        """Return the result of a request about prompts or resources, as the server wrote it.

        Raises AnsweredError, LostError and TimeoutError.
        """
        ...
