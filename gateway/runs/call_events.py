"""The events of a run for a client that its calls are shown to: as they happen, and once more from its record.

Each call has an id, by which a reader knows it again: events may come twice.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile

from gateway.contracts.exchange import Chunk, Exchange
from gateway.contracts.storage.journal import StoredStep
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.chat_request import list_client_tools
from gateway.dialects.id_scrubbing import defuse
from gateway.runs.idempotency_key import begins_with_record
from gateway.tools.catalog import Catalog

#: States of a step that ran, and of one that did not, whose results the model may read.
_RAN, _NOT_RUN = frozenset(("finished", "failed")), frozenset(("refused", "rejected"))


def begins_on_record(exchange: Exchange) -> bool:
    """Return whether a turn is stored before its first step.

    That is so in the background, where a repeated request must find its response by its key, and to show calls behind a
    question: the worker that continues it after a crash then knows which calls belong to earlier answers.
    """
    is_behind = exchange.execution.resume is not None and exchange.execution.resume.messages is not None
    return not exchange.dry and (
        exchange.delivery.background or begins_with_record(exchange) or (exchange.delivery.shows_calls and is_behind)
    )


def build_opening(exchange: Exchange, said: str, steps: Sequence[StoredStep], catalog: Catalog) -> Iterator[Chunk]:
    """Yield the chunks that an answer begins with.

    `said` is the text of its turn so far. `steps` are the steps that the turn may have shown.
    """
    if exchange.delivery.events:
        yield chunks.build_event({"type": "run.started", "run_id": exchange.id})
    if exchange.execution.resume is None:
        if exchange.delivery.shows_calls:
            yield build_tools_event(exchange, catalog)
        return
    if exchange.delivery.shows_calls or exchange.delivery.background:
        yield chunks.build_event({"type": "run.resumed", "run_id": exchange.id, "said": said})
    elif said:
        yield said
    if exchange.delivery.shows_calls:
        yield from build_call_events(steps, catalog)


def build_tools_event(exchange: Exchange, catalog: Catalog) -> Chunk:
    """Return the event with all of our tools that the request may use. A client's tool of the same name wins.

    `failed` are the services that the request names and that do not run, so that nothing of them can be listed.
    """
    theirs = list_client_tools(exchange.body)
    tools = [
        {
            "tool": entry.spec.name,
            "service": None if entry.service is None else entry.service.name,
            "description": entry.spec.description,
            "parameters": entry.spec.parameters,
        }
        for entry in catalog.get_entries(exchange)
        if entry.model_name not in theirs
    ]
    named = () if exchange.steering.no_tools else exchange.steering.services
    down = (service.name for service in catalog.list_services() if service.name in named and not service.running)
    failed = [{"service": name, "error": f"The service {name!r} is not running just now."} for name in down]
    return chunks.build_event({"type": "tools.listed", "tools": tools, **({"failed": failed} if failed else {})})


def build_start_event(step: StoredStep, catalog: Catalog) -> Chunk:
    """Return the event of a call that begins, with the arguments that run."""
    return chunks.build_event({"type": "tool.started", **_build_call_fields(step, catalog)})


def build_finish_event(step: StoredStep, catalog: Catalog) -> Chunk:
    """Return the event of a call that has its result, also of one that never began.

    The result is the one that the model is shown, without ids of approvals: no text of a tool passes for the gateway's.
    """
    result = defuse(step.shown or step.result or "")
    return chunks.build_event(
        {"type": "tool.finished", **_build_call_fields(step, catalog), "ok": step.state == "finished", "result": result}
    )


def build_call_events(steps: Sequence[StoredStep], catalog: Catalog) -> Iterator[Chunk]:
    """Yield the events of all calls that have results, as the record has them."""
    for step in filter(_has_result, steps):
        if step.state in _RAN:
            yield build_start_event(step, catalog)
        yield build_finish_event(step, catalog)


def count_leading_results(steps: Sequence[StoredStep]) -> int:
    """Return the number of the first calls that all have results."""
    return sum(1 for _ in takewhile(_has_result, steps))


def build_answer(
    content: str, rounds: Sequence[tuple[str, Sequence[int]]], steps: Sequence[StoredStep], catalog: Catalog
) -> Iterator[Chunk]:
    """Yield the text of an answer with the events of its calls between its pieces.

    `rounds` are the texts that came before calls, and the numbers of the calls. A text that is not found in the answer
    belongs to an earlier turn, or was changed on its way: its calls come where the last one was found.
    """
    at = 0
    for text, numbers in rounds:
        if text and (begin := content.find(text, at)) >= 0:
            end = begin + len(text)
            yield content[at:end]
            at = end
        yield from build_call_events([steps[number] for number in numbers], catalog)
    if content[at:]:
        yield content[at:]


def _has_result(step: StoredStep) -> bool:
    return step.state in _RAN or (step.state in _NOT_RUN and step.result is not None)


def _build_call_fields(step: StoredStep, catalog: Catalog) -> Json:
    """Return the fields that the start event and the finish event of a call share."""
    return {
        "tool": step.tool,
        "service": catalog.find_service_name(step.tool),
        "call_id": step.call_id,
        "number": step.number,
        "arguments": step.arguments,
        "approval_id": step.approval_id,
    }
