"""The pages of the dialects that need no store: the endpoint of each, and the list of models."""

from dataclasses import dataclass
from functools import partial

from aiohttp import web

from gateway.api.asking import ContextRequests
from gateway.api.site import Route
from gateway.context.headers import credential_header, forwarded
from gateway.dialects.dialect import Dialect
from gateway.dialects.endpoints import STATELESS, paths_of
from gateway.dialects.table import dialect_of
from gateway.errors import GatewayError
from gateway.lanes.local import head_of
from gateway.model.listing import Asking
from gateway.turns import aside

MODEL_PATHS = ("/context/models", "/context/v1/models")


@dataclass(frozen=True, slots=True)
class ChatPages:
    """The chat pages."""

    requests: ContextRequests

    def routes(self) -> list[Route]:
        chat = [
            ("POST", path, partial(self._chat, dialect=dialect))
            for dialect in map(dialect_of, STATELESS)
            for base in paths_of(dialect.endpoint)
            for path in (base, f"{base}/")
        ]
        models = [("GET", path, self._models) for path in MODEL_PATHS]
        return [*chat, *models]

    async def _chat(self, request: web.Request, *, dialect: Dialect) -> web.StreamResponse:
        requests = self.requests
        async with requests.entered(request) as entered:
            content = await requests.content(request, entered)
            parse = partial(dialect.parse, content, needs_model=entered.core.needs_model)
            asked = await aside(parse, content=content)
            run, request_key = await requests.run_of(request, entered, asked, content)
            keep = None if run.shown_to is None else partial(requests.foreign.mark, run)
            try:
                answer = dialect.answer(asked, run_id=run.request_id, created_s=run.created_s)
                response = await entered.lane.answer(request, run, answer, streams=asked.streams, keep=keep)
            except GatewayError:
                requests.resumption.delivered(run, request_key)
                raise
            finally:  # also of an answer that its client left
                await requests.foreign.mark(run)
            requests.resumption.delivered(run, request_key)
            return response

    async def _models(self, request: web.Request) -> web.StreamResponse:
        _, core = self.requests.current()
        head = head_of(request)
        identity = self.requests.identify(head, core.candidates({}).has_key, "context")
        header, credential = forwarded(head, identity.consumed)
        asking = Asking(identity.caller, lines=header, credential=credential, header=credential_header(head))
        status, content_type, content = await core.models(asking)
        return web.Response(status=status, body=content, headers={"Content-Type": content_type})
