"""The model call that summarises a conversation, for each way to compact one (decisions 0046 and 0102).

It is a run of its own without tools, and without stages but for those that guard answers. It counts for
limits and usage as others do.
"""

from collections.abc import Sequence
from typing import Final

from gateway.api.context_request import AdmittedRequest, ContextRequests
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.contracts.records import replace
from gateway.contracts.storage.store import Json
from gateway.dialects.merged_messages import append_own_messages
from gateway.dialects.responses.answer import ResponseAnswer
from gateway.dialects.responses.response_metadata import ResponseFacts
from gateway.runs.idempotency_key import RequestKey
from gateway.runs.live_run import LiveRun

_TASK: Final = "compaction"
_WISH: Final = (
    "Summarise this conversation, so that another model can continue it without having read it. Keep every fact, "
    "decision, name, number, open question and result of a tool that may matter later, and what the user wants. Write "
    "the summary only."
)
#: Fields of a request that are about its answer, and not about a summary.
_OF_ANSWER: Final = ("tools", "tool_choice", "parallel_tool_calls", "response_format", "verbosity", "max_tokens")


async def begin_summary(requests: ContextRequests, entered: AdmittedRequest, body: Json, *, run_id: str) -> LiveRun:
    """Begin the run that summarises the messages of a request. Raises GatewayError."""
    lane, core, head = entered.lane, entered.core, entered.head
    messages = append_own_messages(body["messages"], [{"role": "user", "content": _WISH}])
    body = {name: value for name, value in body.items() if name not in _OF_ANSWER} | {"messages": messages}
    candidates = core.list_candidates(body)
    identity = entered.identities.get(candidates.has_key) or requests.identify(head, candidates.has_key, "context")
    candidates.filter_allowed(identity.caller)
    exchange: Exchange = await lane.build_exchange(head, body, identity=identity, run_id=run_id)
    exchange = replace(exchange, prompt=None, job=replace(exchange.job, task=_TASK))
    key, handler = RequestKey(run_id, None, repeats=False), lane.build_plain_handler(exchange.chain)
    return await lane.admit_run(exchange, lambda: lane.runs.begin(exchange, key, lane.with_open_tools(handler)))


async def read_summary(entered: AdmittedRequest, run: LiveRun, answer: ResponseAnswer) -> Sequence[Json]:
    """Return the output of a response that compacts, once its run has ended. Raises GatewayError."""
    lane = entered.lane
    lane.runs.join(run)
    whole = False
    try:
        answer.build_whole(await run.transcript.wait_for_whole())
        whole = True
    except GatewayError:
        whole = True
        raise
    finally:
        lane.runs.remove_client(run, whole=whole)
    return answer.output


def build_summary_facts(facts: ResponseFacts) -> ResponseFacts:
    """Return the facts of a response that compacts what a request goes on from."""
    return ResponseFacts(fields=facts.fields, compacts=True)
