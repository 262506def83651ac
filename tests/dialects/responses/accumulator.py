"""A client that puts a response together from its events, and insists on their order."""

from collections.abc import Sequence

from gateway.contracts.storage.store import Json

#: Events with a piece of a text: the event with the whole of it, and its field there.
_PIECES = {
    "response.output_text.delta": ("response.output_text.done", "text"),
    "response.refusal.delta": ("response.refusal.done", "refusal"),
    "response.reasoning_summary_text.delta": ("response.reasoning_summary_text.done", "text"),
    "response.function_call_arguments.delta": ("response.function_call_arguments.done", "arguments"),
    "response.custom_tool_call_input.delta": ("response.custom_tool_call_input.done", "input"),
    "response.mcp_call_arguments.delta": ("response.mcp_call_arguments.done", "arguments"),
}
_WHOLES = {whole: (piece, field) for piece, (whole, field) in _PIECES.items()}
_PARTS = {"response.content_part": "content", "response.reasoning_summary_part": "summary"}
_LAST = ("response.completed", "response.incomplete", "response.failed")


class Accumulated:
    """The response that events make: `items` as they were added, with the pieces of their texts, and as they ended."""

    def __init__(self, events: Sequence[Json]) -> None:
        self.added: list[Json] = []
        self.done: dict[int, Json] = {}
        self._pieces: dict[tuple[object, ...], list[str]] = {}
        self._parts: dict[tuple[object, ...], Json | None] = {}
        assert events[0]["type"] == "response.created"
        for event in events:
            self._take(event)
        assert events[-1]["type"] in _LAST
        self.response: Json = events[-1]["response"]
        output = self.response["output"]
        assert len(output) == len(self.added)
        for index, item in enumerate(output):
            if index in self.done:
                assert item == self.done[index]
            else:  # a failure leaves it open
                assert (events[-1]["type"], item["status"]) == ("response.failed", "incomplete")
        assert all(part is not None for (at, *_), part in self._parts.items() if at in self.done)

    def _take(self, event: Json) -> None:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert event["output_index"] == len(self.added)
            self.added.append(event["item"])
        elif kind == "response.output_item.done":
            self._end_item(event)
        elif "output_index" in event:
            assert event["output_index"] not in self.done
            assert event["item_id"] == self.added[event["output_index"]]["id"]
            self._take_part(kind, event)

    def _take_part(self, kind: str, event: Json) -> None:
        place = _place(event)
        if kind in _PIECES:
            self._pieces.setdefault((*place, kind), []).append(event["delta"])
        elif kind in _WHOLES:
            piece, field = _WHOLES[kind]
            assert "".join(self._pieces.get((*place, piece), [])) == event[field]
        elif kind.endswith("_part.added"):
            assert place not in self._parts
            self._parts[place] = None
        elif kind.endswith("_part.done"):
            assert self._parts[place] is None
            self._parts[place] = event["part"]

    def _end_item(self, event: Json) -> None:
        index, item = event["output_index"], event["item"]
        before = self.added[index]
        assert index not in self.done
        assert (item["id"], item["type"]) == (before["id"], before["type"])
        assert item.get("status") != "in_progress"
        if item["type"] in ("message", "reasoning"):
            field = "content" if item["type"] == "message" else "summary"
            parts = [part for (at, *_), part in self._parts.items() if at == index]
            assert item[field] == parts and before[field] == []
        self.done[index] = item


def _place(event: Json) -> tuple[object, ...]:
    return event["output_index"], event.get("content_index"), event.get("summary_index")
