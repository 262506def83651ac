"""The reading of an answer, as all APIs have it: how it ends, and how badly written JSON is taken."""

from collections.abc import Callable
from typing import Final

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Emit, Pause
from gateway.contracts.storage.store import Json
from gateway.http.sse import EventError
from gateway.jsontext.value_count import VALUES_LIMIT, holds_more
from gateway.model.error_words import is_error
from gateway.model.json_repair import mend_answer
from gateway.model.refusal import convert_error_event, get_call_outcome
from gateway.model.upstream_client import Target
from gateway.upstream.call import UpstreamCall

#: How long the connection waits for the end of a body behind the last event, which many servers send in a separate
#: segment. The answer does not wait.
END_S: Final = 1.0
#: Longest answer that is not streamed.
WHOLE_LIMIT_BYTES: Final = 16 << 20


async def read_stream(
    call: UpstreamCall, target: Target, take: Callable[[bytes], Pause | None], *, check_end: Callable[[], None]
) -> None:
    """Give each piece of a streamed answer to `take`. `check_end` raises the GatewayError of one that is not whole.

    Raises GatewayError if the answer breaks off.
    """
    outcome = "cancelled"
    try:
        await call.read_each(take)
        check_end()
        outcome = "ok"
    except EventError as error:
        outcome = "invalid"
        raise target.build_answer_error(str(error)) from None
    except GatewayError as error:
        outcome = "cancelled" if call.given_up else get_call_outcome(error)
        raise
    finally:
        target.group.tally.outcomes[outcome] += 1


async def read_whole(call: UpstreamCall, target: Target, emit: Emit, convert: Callable[[bytes], Json]) -> None:
    """Emit the chunk that `convert` makes of an answer that is not streamed. Raises GatewayError."""
    outcome = "cancelled"
    try:
        content = await call.read_within(WHOLE_LIMIT_BYTES)
        if len(content) > WHOLE_LIMIT_BYTES:
            raise target.build_answer_error(f"its answer is longer than {WHOLE_LIMIT_BYTES} bytes")
        if (pause := emit(convert(content))) is not None:
            await pause()
        outcome = "ok"
    except GatewayError as error:
        outcome = "cancelled" if call.given_up else get_call_outcome(error)
        raise
    finally:
        target.group.tally.outcomes[outcome] += 1


def parse_object(content: bytes, target: Target) -> Json:
    """Return an answer that is not streamed. Raises GatewayError if it is an error, or not an object."""
    answer = parse_value(content, target, mend_answer)
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    if not isinstance(answer, dict):
        raise target.build_answer_error("its answer is no object")
    if is_error(answer):
        raise convert_error_event(answer, target)
    return answer


def parse_value(
    data: bytes, target: Target, mend: Callable[[bytes], object], *, is_badly_written: bool = False
) -> object:
    """Return the value of JSON. Raises GatewayError if it is invalid or has too many values."""
    if holds_more(data, VALUES_LIMIT):
        raise target.build_answer_error(f"an event of its answer holds more than {VALUES_LIMIT} values")
    if is_badly_written:
        return _mend_json(data, target, mend)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _mend_json(data, target, mend)


def _mend_json(data: bytes, target: Target, mend: Callable[[bytes], object]) -> object:
    """Return the value of badly written JSON. Raises GatewayError if it cannot be mended."""
    try:
        return mend(data)
    except ValueError:
        raise target.build_answer_error("an event of its answer is not JSON") from None
