"""The cost of a response whose input is long, and of one that goes on from a long one, in each of the ways."""

from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from bench.grown import Client, Grown, Json, build_turns, get, post, print_one_by_one
from bench.growth_runs import build_config
from bench.model import Model

RESPONSES, CONVERSATIONS = "/context/v1/responses", "/context/v1/conversations"
#: Requests for each figure.
REQUESTS = 10


def measure(folder: Path, *, items: Sequence[int], megabytes: Sequence[int]) -> None:
    """Print the rows."""
    with Model() as model:
        for count in items:
            with Grown(folder / f"items{count}", build_config(folder / f"items{count}", model.port)) as gateway:
                _measure_long(gateway, count)
        for size in megabytes:
            with Grown(folder / f"large{size}", build_config(folder / f"large{size}", model.port)) as gateway:
                _measure_large(gateway, size)


def _measure_long(gateway: Grown, count: int) -> None:
    size = f"{count} items"
    _measure_row(
        gateway, "a response with input items of 1 KB", size, lambda number: _build_request(build_turns(count, number))
    )
    with Client(gateway.port) as client:
        first = orjson.loads(client.ask(post(RESPONSES, _build_request(build_turns(count, -1)))))["id"]
        conversation = orjson.loads(client.ask(post(CONVERSATIONS, {})))["id"]
        client.ask(post(RESPONSES, {**_build_request(build_turns(count, -2)), "conversation": conversation}))

    def build_further(number: int) -> Json:
        return {**_build_request(build_turns(1, number)), "previous_response_id": first}

    _measure_row(gateway, "a response that goes on from such a one", size, build_further)

    def build_in_conversation(number: int) -> Json:
        return {**_build_request(build_turns(1, number)), "conversation": conversation}

    _measure_row(gateway, "the same in a conversation", size, build_in_conversation)
    page = get(f"{RESPONSES}/{first}/input_items?limit=100")
    _measure_row(gateway, "a page of its input items", size, lambda _: page)


def _measure_large(gateway: Grown, size: int) -> None:
    """Measure one item, and instructions, which a response repeats, of so many megabytes."""
    text = "lorem ipsum dolor sit amet " * (size * (1 << 20) // 27)

    def build_large_item(number: int) -> Json:
        return _build_request([{"role": "user", "content": f"{number} {text}"}, *build_turns(1, number)])

    _measure_row(gateway, "a response with one large item", f"{size} MB", build_large_item)

    def build_instructed(number: int) -> Json:
        return {**_build_request(build_turns(1, number)), "instructions": text}

    _measure_row(gateway, "a response with large instructions", f"{size} MB", build_instructed)
    with Client(gateway.port) as client:
        first = orjson.loads(client.ask(post(RESPONSES, build_instructed(-1))))["id"]
    _measure_row(gateway, "such a response, read again", f"{size} MB", lambda _: get(f"{RESPONSES}/{first}"))


def _measure_row(gateway: Grown, what: str, size: str, asked: Callable[[int], Json | bytes]) -> None:
    """Print the row of a request that is sent some times, each with another number."""
    made = map(asked, range(REQUESTS + 1))
    requests = [one if isinstance(one, bytes) else post(RESPONSES, one) for one in made]
    print_one_by_one(gateway, requests, what=what, size=size)


def _build_request(items: Sequence[Json]) -> Json:
    return {"model": "bench", "input": items}
