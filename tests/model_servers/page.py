"""Write docs/model-servers.md from the rooms of the museum (`python -m tests.model_servers.page`)."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.model.adaptation.quirks import sort_quirks

from .answers import Style
from .calls import (
    as_object,
    at_index_zero_in_pieces,
    from_one,
    in_pieces,
    named_first,
    signed_without_index,
    together_without_index,
    whole,
    whole_at_index_zero,
    whole_without_index,
    with_empty_ids,
)
from .room import Room
from .rooms import FAMILIES, ROOMS

DOCUMENT: Final = Path(__file__).parents[2] / "docs/model-servers.md"
_INTRODUCTION: Final = """\
# Model servers

Model servers that speak "the OpenAI API" differ: in what they refuse, and in how their answers look. This page lists
what {n_rooms} of them were seen to do, and what the gateway makes of it in the context lane. Passthrough changes
nothing.

It is written from records that the tests run (`tests/model_servers/rooms/`). For each, a scripted server refuses and
answers as its record says. Clients of both APIs ask it with and without tools, streamed or not, behind eight kinds of
conversations. Nothing here is a promise of a provider: a version is the one that the sources are about.

Every feature that a row names works, except those that it calls lost:

- **adapted**: the server refuses it. The gateway learns that from the refusal, sends the request once more without it,
  and does so from then on. The names are those of [`quirks`](upstreams.md#servers-that-refuse-a-part-of-a-request).
- **read**: its answers look so, and clients get what the API documents.
- **too long**: its words for a conversation that does not fit become the code `context_length_exceeded`.
- **lost**: the client gets the words of the server, or less than the server had.

For the way to set up a server, see [Upstreams that fail](upstreams.md).
"""
#: How calls are written, in words. OpenAI's way needs none.
_CALLS: Final = {
    named_first: "a call begins with its name and without arguments",
    from_one: "the first call has the index 1",
    with_empty_ids: "further pieces of a call have an empty id",
    at_index_zero_in_pieces: "all calls have the index 0, and repeat their id in each piece",
    whole: "each call comes as a whole",
    whole_at_index_zero: "each call comes as a whole, all with the index 0",
    whole_without_index: "each call comes as a whole, without an index",
    together_without_index: "all calls come in one event, without an index and a type",
    signed_without_index: "each call comes as a whole, without an index; the first has the signature of a thought,"
    " which comes back to the server",
    as_object: "a call is an object in place of a list, with an empty id, and a whole answer has its arguments as an"
    " object",
}
_THOUGHTS: Final = {
    "reasoning_content": "thoughts are in `reasoning_content`",
    "reasoning": "thoughts are in `reasoning`",
    "reasoning_details": "thoughts are in `reasoning` and `reasoning_details`, which come back to the server",
    "parts": "thoughts and texts are lists of parts",
}
_USAGE: Final = {
    "own with a choice": "tokens are counted in an event of their own that has a choice",
    "finish": "tokens are counted in the event of the finish reason",
    "choice": "tokens are counted inside of the choice",
    "x_groq": "tokens are counted in `x_groq`",
}


def render() -> str:
    """Return the text of docs/model-servers.md."""
    lines = [_INTRODUCTION.format(n_rooms=len(ROOMS))]
    for family, rooms in FAMILIES.items():
        lines += [f"## {family}", ""]
        for room in rooms:
            lines += [f"### {room.title}", "", *_facts(room), ""]
    return "\n".join(lines).rstrip() + "\n"


def _facts(room: Room) -> Iterator[str]:
    yield f"Seen: {room.version}."
    yield ""
    if room.refuses:
        learnt = ", ".join(f"`{name}`" for name in sort_quirks(room.learns))
        yield f"- adapted: it refuses {_listed(room.refuses)}" + (f" ({learnt})" if learnt else "")
    yield from (f"- read: {habit}" for habit in (*_habits(room.style), *room.habits))
    if room.too_long is not None:
        yield "- too long: known"
    if room.style.thought.startswith("<"):
        yield f"- lost: thoughts stand in the text, between `{room.style.thought}` and its end, and clients get them so"
    if room.style.tokens == (0, 0):
        yield "- lost: it counts zero tokens; the gateway estimates them"
    yield from (f'- lost: {what}s: clients get "{words}"' for what, words in room.lost.items())
    yield f"- sources: {', '.join(_link(source) for source in room.sources)}"


def _habits(style: Style) -> Iterator[str]:
    if style.before and style.before[0].startswith(":"):
        yield "comments come before the first event"
    if style.opening is None:
        yield "the first event has a text, or a call"
    if not style.done:
        yield "the stream ends without `[DONE]`"
    if style.fresh_ids:
        yield "each event has another `id`"
    if style.finish_with_last:
        yield "the finish reason comes with the last piece"
    if style.calls is not in_pieces:
        yield _CALLS[style.calls]
    if style.thought in _THOUGHTS:
        yield _THOUGHTS[style.thought]
    if style.usage in _USAGE:
        yield _USAGE[style.usage]


def _listed(parts: tuple[str, ...]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _link(source: str) -> str:
    if not source.startswith("https://"):
        return source
    place = source.removeprefix("https://").removeprefix("github.com/")
    return f"[{re.sub('/(?:issues|pull)/', '#', place)}]({source})"


def main() -> str | None:
    """Write the page; with `--check` report instead whether it is out of date."""
    if "--check" not in sys.argv[1:]:
        DOCUMENT.write_text(render(), "utf-8")
    elif DOCUMENT.read_text("utf-8") != render():
        return f"{DOCUMENT.name} is out of date: run `make docs`"
    return None


if __name__ == "__main__":
    sys.exit(main())
