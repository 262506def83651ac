"""The pages of the dialects that need no store: the endpoint of each, and the list of models."""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final

from aiohttp import web

from gateway.aio.cooperative import run_aside
from gateway.api.context_request import ContextRequests
from gateway.api.message_models import build_model, build_model_page
from gateway.api.ops_pages import MODEL_PATHS, Route, requests_messages_models
from gateway.context.headers import find_credential_header, select_forwarded_headers
from gateway.contracts.errors import GatewayError
from gateway.dialects.dialect import Dialect
from gateway.dialects.loader import load_dialect
from gateway.dialects.registry import ENDPOINTS, STATELESS, build_paths
from gateway.lanes.aiohttp_adapter import get_head
from gateway.model.listing import ListingClient

_FIRST: Final = "chat"


@dataclass(frozen=True, slots=True)
class ChatPages:
    """The pages. Chats are there from the start, and the first request of another dialect loads it."""

    requests: ContextRequests
    _loaded: dict[str, Dialect] = field(default_factory=lambda: {_FIRST: load_dialect(_FIRST)})

    def list_routes(self) -> list[Route]:
        chat = [
            ("POST", path, partial(self._serve_chat, name=name))
            for name in STATELESS
            for base in build_paths(ENDPOINTS[name])
            for path in (base, f"{base}/")
        ]
        models = [("GET", path, self._serve_models) for path in MODEL_PATHS]
        # Other clients' requests for a single model go to the upstream (gateway/lanes/classify.py).
        single = [("GET", f"{path}/{{model}}", self._answer_model) for path in MODEL_PATHS]
        return [*chat, *models, *single]

    async def _serve_chat(self, request: web.Request, *, name: str) -> web.StreamResponse:
        requests, dialect = self.requests, self._loaded.get(name)
        async with requests.admit_request(request) as entered:
            if dialect is None:  # an import takes the loop's time
                dialect = self._loaded[name] = await asyncio.to_thread(load_dialect, name)
            content = await requests.read_body(request, entered)
            parse = partial(dialect.parse, content, needs_model=entered.core.needs_model)
            asked = await run_aside(parse, content=content)
            run, request_key = await requests.get_run(request, entered, asked, content)
            keep = None if run.answer.shown_to is None else partial(requests.mark_foreign, run)
            try:
                answer = dialect.build_writer(asked, run_id=run.request_id, created_s=run.created_s)
                response = await entered.lane.send_answer(request, run, answer, streams=asked.streams, keep=keep)
            except GatewayError:
                requests.resumption.forget_answered_question(run, request_key)
                raise
            finally:  # also of an answer that its client left
                await requests.mark_foreign(run)
            requests.resumption.forget_answered_question(run, request_key)
            return response

    async def _serve_models(self, request: web.Request) -> web.StreamResponse:
        status, content_type, content = await self._list_models(request)
        if requests_messages_models(request) and status == HTTPStatus.OK:
            content = await run_aside(partial(build_model_page, content, request.query), content=content)
        return web.Response(status=status, body=content, headers={"Content-Type": content_type})

    async def _answer_model(self, request: web.Request) -> web.StreamResponse:
        status, content_type, content = await self._list_models(request)
        if status == HTTPStatus.OK:
            content = await run_aside(partial(build_model, content, request.match_info["model"]), content=content)
        return web.Response(status=status, body=content, headers={"Content-Type": content_type})

    async def _list_models(self, request: web.Request) -> tuple[int, str, bytes]:
        """Return (status, content type, body) of the list of models. Raises GatewayError."""
        _, core = self.requests.current()
        head = get_head(request)
        identity = self.requests.identify(head, core.list_candidates({}).has_key, "context")
        header, credential = select_forwarded_headers(head, identity.consumed)
        asking = ListingClient(
            identity.caller, lines=header, credential=credential, header=find_credential_header(head)
        )
        return await core.fetch_models(asking)
