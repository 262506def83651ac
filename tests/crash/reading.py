"""One response of the Responses API as its client sees it: its events, over as many connections as it takes."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import aiohttp

from .effects import Json

RESPONSES = "/context/v1/responses"
DONE = b"data: [DONE]\n\n"
#: A response is over in one of these.
OVER = frozenset(("completed", "incomplete", "failed", "cancelled"))


@dataclass(slots=True)
class Reading:
    """A response, as far as its client has read it. `frames` are its events in order, each as it came.

    `done`: the client has all of it. `last` is the response as the client saw it last, whole or not.
    """

    background: bool
    before: "Reading | None" = None  # the response that it continues
    id: str = ""
    frames: list[bytes] = field(default_factory=list)
    done: bool = False
    last: Json = field(default_factory=dict)
    connections: int = 0

    async def take(self, response: aiohttp.ClientResponse, *, until: Callable[[], bool] = lambda: False) -> None:
        """Read a stream to its end, or until then. Raises ClientError if the connection is lost."""
        self.connections += 1
        async for frame in frames_of(response):
            if frame == DONE:
                self.done, self.last = True, event_of(self.frames[-1])["response"]
                return
            self.frames.append(frame)
            self.id = self.id or event_of(frame)["response"]["id"]
            if until():
                return

    @property
    def items(self) -> list[Json]:
        """The output as far as it is known whole: that of the last look, or of the events."""
        if self.last:
            output: list[Json] = self.last["output"]
            return output
        return [event["item"] for event in map(event_of, self.frames) if event["type"] == "response.output_item.done"]

    @property
    def questions(self) -> list[str]:
        return [item["id"] for item in self.items if item["type"] == "mcp_approval_request"]

    @property
    def calls(self) -> list[int]:
        """The numbers of the lines that it says were written."""
        calls = (item for item in self.items if item["type"] == "mcp_call" and item["status"] == "completed")
        return [json.loads(call["arguments"])["n"] for call in calls]

    @property
    def text(self) -> str:
        return text_of(self.items)


def text_of(items: Sequence[Json]) -> str:
    """The texts of all messages that are whole."""
    messages = (item for item in items if item["type"] == "message" and item["status"] == "completed")
    return "\n\n".join(part["text"] for message in messages for part in message["content"])


def event_of(frame: bytes) -> Json:
    """The event of a frame, whose head must name its type."""
    head, _, data = frame.partition(b"\ndata: ")
    event: Json = json.loads(data)
    assert head == b"event: " + event["type"].encode(), frame
    return event


async def frames_of(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The events of a stream as they come, without comments, and without one in which the connection is lost."""
    while (frame := await response.content.readuntil(b"\n\n")).endswith(b"\n\n"):
        if not frame.startswith(b":"):
            yield frame


async def replay(session: aiohttp.ClientSession, url: str, response_id: str, *, after: int = -1) -> list[bytes]:
    """All events of a background response that has ended, those behind number `after`."""
    behind = f"&starting_after={after}" if after >= 0 else ""
    async with session.get(f"{url}{RESPONSES}/{response_id}?stream=true{behind}") as response:
        assert response.status == 200, await response.text()
        frames = [frame async for frame in frames_of(response)]
    assert frames.pop() == DONE
    return frames
