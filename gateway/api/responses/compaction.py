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
from gateway.api.ops_pages import REQUEST_ID, Route
from gateway.api.responses.creating import Creation
from gateway.api.responses.summary import begin_summary, build_summary_facts, read_summary
from gateway.api.views import build_json_answer
from gateway.dialects.registry import build_paths
from gateway.dialects.responses.answer import ResponseAnswer
from gateway.dialects.responses.ids import build_response_id
from gateway.dialects.responses.items import build_input_items
from gateway.dialects.responses.request import parse_compaction
from gateway.dialects.responses.response_metadata import ResponseFacts
from gateway.runs.run_id import generate_run_id

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
            run = await begin_summary(requests, entered, asked.body, run_id=run_id)
            answer = ResponseAnswer(
                build_summary_facts(ResponseFacts.from_request(asked)),
                response_id=build_response_id(run_id),
                created_s=run.created_s,
                now_s=self.creation.kept.clock.time,
                seal=(await self.creation.sealing.get_seal(entered.caller.tenant)).seal_summary,
            )
            output = await read_summary(entered, run, answer)
            resource = answer.build_resource()
            items = build_input_items([*earlier, *asked.items], response_id=resource["id"])
            kept = [one for one in items if one.get("role") in _KEPT_ROLES]
            return build_json_answer(
                {
                    "id": resource["id"],
                    "object": "response.compaction",
                    "output": [*kept, *output],
                    "created_at": resource["created_at"],
                    "usage": resource["usage"],
                }
            )
