"""Rows of responses: made of the record of a run or of an answer, and read as items."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import orjson

from gateway.aio.cooperative import run_aside
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.journal import StoredRun
from gateway.contracts.storage.responses import StoredResponse
from gateway.contracts.storage.store import Json
from gateway.dialects.responses.answer import ResponseAnswer
from gateway.dialects.responses.items import build_input_items
from gateway.runs.answer_log import parse_end_entry

#: The mark of our requests among the clients of runs (`Origin.client`).
API: Final = "responses"


def write(
    response_id: str, answer: ResponseAnswer, chunks: Sequence[Chunk], *, failure: GatewayError | None, over: bool
) -> None:
    """Write an answer from its chunks, for its Response object."""
    answer.read([chunk for chunk in chunks if parse_end_entry(chunk) is None])
    if failure is not None:
        answer.fail(failure, request_id=response_id)
    elif over:
        answer.end()


def close_row(row: StoredResponse, answer: ResponseAnswer) -> StoredResponse:
    """Return a response with its end."""
    return replace(row, state=answer.status, output=answer.json)


def is_hidden(row: StoredResponse) -> bool:
    """Return whether a row only records that its response was deleted."""
    return row.output == b""


def build_row(run: StoredRun, response_id: str) -> StoredResponse | None:
    """Return the response that a stored run began with. None: another API's request began it."""
    asked: Json = orjson.loads(run.request)
    client, background = asked.get("client"), asked.get("background", False)
    if client is None or client.get("api") != API:
        return None
    return StoredResponse(
        id=response_id,
        tenant=run.tenant,
        caller=run.caller,
        state="queued" if background else "in_progress",
        created_s=run.created_s,
        run_id=run.id,
        previous_id=client["previous_id"],
        conversation=client["conversation"],
        background=background,
        request=orjson.dumps(client["request"]),
        input=orjson.dumps(build_input_items(client["input"], response_id=response_id)),
    )


def build_added_items(listed_input: bytes, output: Sequence[Json]) -> list[tuple[str, bytes]]:
    """Return the items that a response adds to its conversation, each with its id."""
    return [(item["id"], orjson.dumps(item)) for item in (*orjson.loads(listed_input), *output)]


async def index_by_id(row: StoredResponse) -> Mapping[str, Json]:
    """Return the items of a response by their ids."""
    items = await run_aside(partial(read_items, row), content=row.input, more_bytes=len(row.output or b""))
    return {item["id"]: item for item in items}


def read_items(row: StoredResponse) -> list[Json]:
    """Return the input items of a response, and its output items once it has ended."""
    items: list[Json] = orjson.loads(row.input)
    return items if not row.output else [*items, *orjson.loads(row.output)["output"]]


def build_not_found_error() -> GatewayError:
    """Return the error of a missing response. A response of another tenant gets the same answer."""
    return GatewayError("response_not_found", "There is no response with this id; 'store' false keeps none.")


def build_missing_response_error(response_id: str, gone: str) -> GatewayError:
    """Return the error of a request that goes on from a response. `gone` is missing: that one, or one before it."""
    what, last = f"Previous response with id '{response_id[:80]}' not found", ", or the id of a response that is stored"
    if gone != response_id:  # the request does not name that one
        what = (
            f"The earlier response '{gone}', from which '{response_id}' goes on, is not stored (it was deleted, is too "
            "old, or had 'store' false)"
        )
        last = ""
    return GatewayError(
        "previous_response_not_found", f"{what}: send the whole input{last}.", param="previous_response_id"
    )
