"""The facts of a request that its response depends on, and their form in the store."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from gateway.contracts.storage.store import Json
from gateway.dialects.responses.calls import ClientTool
from gateway.dialects.responses.conversation import ResponseAsked


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFacts:
    """The facts of one request.

    `fields` are the request's fields as sent, without `input`. `client` are the client's tools by the names that models
    know; others are functions of the same name. `left_out` are the types of hosted tools that the gateway does not
    have, `listed` the labels whose tools the conversation has listed already. `shows_calls`: the request names tools of
    the gateway, so their calls are items. `compacts`: the answer is a compaction. `compaction` is the sealed summary
    that was made before the model call.
    """

    fields: Json
    client: Mapping[str, ClientTool] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    listed: Sequence[str] = ()
    shows_calls: bool = False
    compacts: bool = False
    compaction: str | None = None

    @classmethod
    def from_request(cls, asked: ResponseAsked) -> "ResponseFacts":
        """Return the facts of a request."""
        return cls(
            fields=asked.request.fields,
            client=asked.client_tools,
            left_out=asked.left_out,
            listed=sorted(asked.listed),
            shows_calls=asked.wishes.offers is not None,
            compacts=asked.request.compacts,
        )

    @classmethod
    def from_stored(cls, stored: Json) -> "ResponseFacts":
        """Return the facts that `stored` returned."""
        return cls(**{**stored, "client": {name: ClientTool(**tool) for name, tool in stored["client"].items()}})

    @property
    def stored_json(self) -> Json:
        """Return the facts as JSON."""
        return {
            "fields": self.fields,
            "client": {name: asdict(tool) for name, tool in self.client.items() if not _is_plain(name, tool)},
            "left_out": list(self.left_out),
            "listed": list(self.listed),
            "shows_calls": self.shows_calls,
            **({"compacts": True} if self.compacts else {}),
            **({} if self.compaction is None else {"compaction": self.compaction}),
        }

    def find_tool(self, name: str) -> ClientTool:
        """Return the client's tool that models know by this name."""
        return self.client.get(name) or ClientTool(kind="function", name=name)


def _is_plain(name: str, tool: ClientTool) -> bool:
    return tool == ClientTool(kind="function", name=name)
