"""The cost of a response whose input is long, and of one that goes on from a long one, in each of the ways."""

from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from bench.grown import Client, Grown, Json, get, one_by_one, post, turns
from bench.growth_runs import config
from bench.model import Model

RESPONSES, CONVERSATIONS = "/context/v1/responses", "/context/v1/conversations"
#: Requests for each figure.
REQUESTS = 10


def measure(folder: Path, *, items: Sequence[int], megabytes: Sequence[int]) -> None:
    """Print the rows."""
    with Model() as model:
        for count in items:
            with Grown(folder / f"items{count}", config(folder / f"items{count}", model.port)) as gateway:
                _long(gateway, count)
        for size in megabytes:
            with Grown(folder / f"large{size}", config(folder / f"large{size}", model.port)) as gateway:
                _large(gateway, size)


def _long(gateway: Grown, count: int) -> None:
    size = f"{count} items"
    _measured(gateway, "a response with input items of 1 KB", size, lambda number: _asked(turns(count, number)))
    with Client(gateway.port) as client:
        first = orjson.loads(client.ask(post(RESPONSES, _asked(turns(count, -1)))))["id"]
        conversation = orjson.loads(client.ask(post(CONVERSATIONS, {})))["id"]
        client.ask(post(RESPONSES, {**_asked(turns(count, -2)), "conversation": conversation}))

    def further(number: int) -> Json:
        return {**_asked(turns(1, number)), "previous_response_id": first}

    _measured(gateway, "a response that goes on from such a one", size, further)

    def in_conversation(number: int) -> Json:
        return {**_asked(turns(1, number)), "conversation": conversation}

    _measured(gateway, "the same in a conversation", size, in_conversation)
    page = get(f"{RESPONSES}/{first}/input_items?limit=100")
    _measured(gateway, "a page of its input items", size, lambda _: page)


def _large(gateway: Grown, size: int) -> None:
    """Measure one item, and instructions, which a response repeats, of so many megabytes."""
    text = "lorem ipsum dolor sit amet " * (size * (1 << 20) // 27)

    def large_item(number: int) -> Json:
        return _asked([{"role": "user", "content": f"{number} {text}"}, *turns(1, number)])

    _measured(gateway, "a response with one large item", f"{size} MB", large_item)

    def instructed(number: int) -> Json:
        return {**_asked(turns(1, number)), "instructions": text}

    _measured(gateway, "a response with large instructions", f"{size} MB", instructed)
    with Client(gateway.port) as client:
        first = orjson.loads(client.ask(post(RESPONSES, instructed(-1))))["id"]
    _measured(gateway, "such a response, read again", f"{size} MB", lambda _: get(f"{RESPONSES}/{first}"))


def _measured(gateway: Grown, what: str, size: str, asked: Callable[[int], Json | bytes]) -> None:
    """Print the row of a request that is sent some times, each with another number."""
    made = map(asked, range(REQUESTS + 1))
    requests = [one if isinstance(one, bytes) else post(RESPONSES, one) for one in made]
    one_by_one(gateway, requests, what=what, size=size)


def _asked(items: Sequence[Json]) -> Json:
    return {"model": "bench", "input": items}
