"""The output of a response that compacts: one item, whose sealed content is the text that the model writes."""

from collections.abc import Callable
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.dialects.responses.events import ResponseEvents
from gateway.dialects.responses.ids import build_output_id
from gateway.dialects.responses.output.items import Item, Status, WholeItem
from gateway.dialects.run_chunk_reader import TurnState


class SummaryOutput:
    """The one item of a response that compacts. It has no events of texts: its client cannot read the summary."""

    part: Final = None  # nothing takes pieces

    def __init__(self, *, response_id: str, events: ResponseEvents, seal: Callable[[str], str] | None) -> None:
        self.turn = TurnState()
        self.items: list[Item] = []
        self.events = events
        self._seal = seal
        self._pieces: list[str] = []
        self._fields = {"id": build_output_id("cmp", response_id, 0), "type": "compaction", "encrypted_content": ""}

    def begin(self) -> None:
        """Note that the response has begun: its item begins with the first text."""

    def add_chunk(self, chunk: Chunk) -> None:
        """Add a chunk of a run."""
        text = chunk if isinstance(chunk, str) else self.turn.take_chunk(chunk)[0].get("content")
        if not isinstance(text, str) or not text:
            return
        self._pieces.append(text)
        if self.items:
            return
        self.items.append(WholeItem(self._fields))
        self.events.add("response.output_item.added", {"output_index": 0, "item": self._fields})
        self.events.add("response.compaction.compacting", {"item_id": self._fields["id"], "output_index": 0})

    def end(self, status: Status) -> None:
        """End the item. Raises GatewayError (upstream_error) if the summary is empty or was cut."""
        text = "".join(self._pieces)
        if not text.strip() or status != "completed" or self._seal is None:
            raise GatewayError("upstream_error", "The model wrote no whole summary: try again, or use another model.")
        item = {**self._fields, "encrypted_content": self._seal(text)}
        self.items[0] = WholeItem(item)
        self.events.add("response.output_item.done", {"output_index": 0, "item": item})

    def fail(self) -> None:
        """Leave the item out: without its content it is of no use."""
        self.items.clear()
