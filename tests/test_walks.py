"""The way of a chat request through the rooms, measured: it enters few of them twice (docs/architecture.md)."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from functional.through import HOSTS, ask, post

from gateway.testing import ScriptedModel
from gateway.testing.local_gateway import LocalGateway

ROOT = Path(__file__).parent.parent
#: Rooms whose functions are tools of the others, and the object graph that holds them together.
NO_STATIONS = {"contracts", "http", "telemetry", "text", "plugin", "server", "testing", "dialects"}
#: The way down, as docs/life-of-a-request.md describes it: the task of the page, and the task of the run.
LANE = ("api", "context", "runs")
RUN = ("runs", "context", "agent", "model", "upstream")


@contextmanager
def walked(stacks: list[tuple[str, ...]]) -> Iterator[None]:
    """Collect, for each function of ours that is called, the rooms on its stack."""

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and room_of(frame) is not None:
            stacks.append(rooms_of(frame))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def room_of(frame: FrameType) -> str | None:
    """The room of a function; None: it is not ours, or a leaf."""
    file = frame.f_code.co_filename
    if file.startswith(f"{ROOT}/plugins/"):
        return "plugins"
    ours = file.removeprefix(f"{ROOT}/gateway/")
    return ours.partition("/")[0] if ours != file and "/" in ours else None


def rooms_of(frame: FrameType | None) -> tuple[str, ...]:
    """The rooms from the outermost frame inwards, a stay in one counted once."""
    rooms: list[str] = []
    while frame is not None:
        room = room_of(frame)
        if room is not None and room not in NO_STATIONS and rooms[-1:] != [room]:
            rooms.append(room)
        frame = frame.f_back
    return tuple(reversed(rooms))


def returns(rooms: Sequence[str]) -> int:
    """How often a room is entered that was left before."""
    return sum(room in rooms[:at] for at, room in enumerate(rooms))


async def test_chat_request_re_enters_at_most_two_packages() -> None:
    """From the page to the run, and from the run through the chain and the agent loop to the upstream."""
    stacks: list[tuple[str, ...]] = []
    content = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode()
    request = post(content, b"/context/v1/chat/completions", b"Content-Type: application/json")
    async with ScriptedModel("First.", "Second.") as model:
        config = {"upstreams": [{"name": "up", "base_url": model.base_url}], "allowed_hosts": HOSTS}
        async with LocalGateway(config) as gateway:
            await ask(gateway, request)  # what is made once is made
            with walked(stacks):
                answer = await ask(gateway, request)
    assert answer.status == 200
    assert {LANE, RUN} <= set(stacks)
    assert returns((*LANE, *RUN[1:])) <= 2
