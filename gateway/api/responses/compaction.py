"""POST /responses/compact: a conversation as a summary that takes its place, sealed (decision 0046).

The model of the request writes the summary, in one call without tools, and without stages but for those that guard
answers. Messages of users, systems and developers stay as they are, in front of it: OpenAI's answer has all messages of
the user and one compaction item. The summary counts as untrusted text: it may repeat some.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from aiohttp import web

from gateway.aio.cooperative import run_aside
from gateway.api.context_request import AdmittedRequest, ContextRequests
from gateway.api.ops_pages import REQUEST_ID, Route
from gateway.api.responses.creating import Creation
from gateway.api.views import build_json_answer
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.contracts.records import replace
from gateway.contracts.storage.store import Json
from gateway.dialects.merged_messages import append_own_messages
from gateway.dialects.registry import build_paths
from gateway.dialects.responses.answer import ResponseAnswer
from gateway.dialects.responses.conversation import ResponseAsked
from gateway.dialects.responses.ids import build_response_id
from gateway.dialects.responses.items import build_input_items
from gateway.dialects.responses.request import parse_compaction
from gateway.dialects.responses.response_metadata import ResponseFacts
from gateway.runs.idempotency_key import RequestKey
from gateway.runs.run_id import generate_run_id

_TASK: Final = "compaction"
_WISH: Final = (
    "Summarise this conversation, so that another model can continue it without having read it. Keep every fact, "
    "decision, name, number, open question and result of a tool that may matter later, and what the user wants. Write "
    "the summary only."
)
_KEPT_ROLES: Final = ("system", "developer", "user")


@dataclass(frozen=True, slots=True)
class CompactionPage:
    """The page that compacts."""

    creation: Creation

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [("POST", path + "/compact", self._serve_compaction) for path in build_paths("responses")]

    async def _serve_compaction(self, request: web.Request) -> web.Response:
        requests = self.creation.requests
        async with requests.admit_request(request) as entered:
            content = await requests.read_body(request, entered)
            wanted = await run_aside(partial(parse_compaction, content), content=content)
            earlier, asked = await self.creation.resolve_request(entered, wanted, content)
            run_id = request[REQUEST_ID] = generate_run_id()
            answer = await self._request_summary(requests, entered, asked, run_id=run_id)
            resource = answer.build_resource()
            text = "".join(part["text"] for item in resource["output"] for part in _list_output_texts(item))
            if not text.strip() or resource["status"] != "completed":
                raise GatewayError(
                    "upstream_error", "The model wrote no whole summary: try again, or use another model."
                )
            seal = await self.creation.sealing.get_seal(entered.caller.tenant)
            item = {
                "id": "cmp_" + run_id.removeprefix("run_"),
                "type": "compaction",
                "encrypted_content": seal.seal_summary(text),
            }
            items = build_input_items([*earlier, *asked.items], response_id=resource["id"])
            kept = [one for one in items if one.get("role") in _KEPT_ROLES]
            return build_json_answer(
                {
                    "id": resource["id"],
                    "object": "response.compaction",
                    "output": [*kept, item],
                    "created_at": resource["created_at"],
                    "usage": resource["usage"],
                }
            )

    async def _request_summary(
        self, requests: ContextRequests, entered: AdmittedRequest, asked: ResponseAsked, *, run_id: str
    ) -> ResponseAnswer:
        """Return the model's answer. Raises GatewayError."""
        lane, core, head = entered.lane, entered.core, entered.head
        body = {
            **asked.body,
            "messages": append_own_messages(asked.body["messages"], [{"role": "user", "content": _WISH}]),
        }
        candidates = core.list_candidates(body)
        identity = entered.identities.get(candidates.has_key) or requests.identify(head, candidates.has_key, "context")
        candidates.filter_allowed(identity.caller)
        exchange: Exchange = await lane.build_exchange(head, body, identity=identity, run_id=run_id)
        exchange = replace(exchange, prompt=None, job=replace(exchange.job, task=_TASK))
        key, handler = RequestKey(run_id, None, repeats=False), lane.build_plain_handler(exchange.chain)
        run = await lane.admit_run(exchange, lambda: lane.runs.begin(exchange, key, lane.with_open_tools(handler)))
        answer = ResponseAnswer(
            ResponseFacts.from_request(asked),
            response_id=build_response_id(run_id),
            created_s=run.created_s,
            now_s=self.creation.kept.clock.time,
        )
        lane.runs.join(run)
        whole = False
        try:
            answer.build_whole(await run.transcript.wait_for_whole())
            whole = True
        finally:
            lane.runs.remove_client(run, whole=whole)
        return answer


def _list_output_texts(item: Json) -> list[Json]:
    parts = item.get("content") or ()
    return [part for part in parts if item["type"] == "message" and part.get("type") == "output_text"]
