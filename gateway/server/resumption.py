"""The services that continue stored runs in one worker, with the responses that follow them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.context.lane import ContextLane
from gateway.context.resumption import Resumption
from gateway.context.stored_request import find_upstream
from gateway.contracts.storage.journal import StoredRun
from gateway.model.call import ModelCall
from gateway.runs.answer_log import AnswerLogs
from gateway.runs.live_run import LiveRun
from gateway.server.lazy_service import FirstUse, import_in_thread
from gateway.server.worker_services import WorkerServices

if TYPE_CHECKING:
    from gateway.api.responses.response_store import KeptResponses


def build_resumption(
    shared: WorkerServices, *, lane: Callable[[], ContextLane], core: Callable[[], ModelCall]
) -> tuple[Resumption, FirstUse["KeptResponses"]]:
    """Return what continues stored runs, and the kept responses, which follow the background ones.

    `lane` and `core` return the context lane and the model core of the configuration in use.
    """
    store, clock = shared.store, shared.clock
    resumption: Resumption

    async def make() -> "KeptResponses":
        return (await import_in_thread(_import_kept_responses))(
            store=store,
            logs=AnswerLogs(store, clock=clock),
            clock=clock,
            is_over=lambda run: resumption.is_turn_finished(run),
            told=lambda run, shows_calls, decided: resumption.load_answer(
                run, shows_calls=shows_calls, decided=decided
            ),
            service_of=lambda tool: lane().catalog.find_service_name(tool),
            lose=shared.leases.lose,
            tracer=shared.tracer,
        )

    async def find_record_callback(run: StoredRun) -> Callable[[LiveRun], None] | None:
        return await (await kept.get()).find_record_callback(run)

    kept = FirstUse(make, end=lambda made: made.close())
    resumption = Resumption(
        lane=lane,
        runs=shared.runs,
        leases=shared.leases,
        feed=shared.feed,
        store=store,
        clock=clock,
        upstream_of=lambda exchange: find_upstream(core(), exchange),
        recording=find_record_callback,
        tracer=shared.tracer,
    )
    return resumption, kept


def _import_kept_responses() -> "type[KeptResponses]":
    # Imported here because many gateways get no request for a response, whose dialect this needs.
    from gateway.api.responses.response_store import KeptResponses

    return KeptResponses
