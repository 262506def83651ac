"""The pages of the context lane: chat completions, and the models that there are."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from aiohttp import web

from gateway.api.content import aside, check_values, content_of
from gateway.api.site import REQUEST_ID, Route
from gateway.api.unasked import unasked
from gateway.approvals.chat_replies import named_approvals, parse_reply
from gateway.context.bringing import Brought
from gateway.context.lane import ContextLane, credential_header, forwarded, new_run_id
from gateway.context.model import ModelCore
from gateway.context.resumption import Asked, Resumption
from gateway.context.steering import steering_of
from gateway.contracts.caller import Caller
from gateway.contracts.journal import ENDED
from gateway.dialects.chat_body import chat_request
from gateway.dialects.chat_request import wants_text, whole_text
from gateway.errors import GatewayError
from gateway.http.request_head import RequestHead
from gateway.lanes.keys import Identify, Identity
from gateway.lanes.local import head_of, note
from gateway.runs.asking import Asking, fingerprint
from gateway.runs.live import LiveRun
from gateway.workflows.invocation import called_in, use_of

CHAT_PATHS = ("/context/chat/completions", "/context/v1/chat/completions", "/v1/chat/completions", "/chat/completions")
MODEL_PATHS = ("/context/models", "/context/v1/models")


class ChatPages:
    """`current` gives the lane and the model core of the configuration in use; `admit` raises when we are full."""

    def __init__(
        self,
        *,
        current: Callable[[], tuple[ContextLane, ModelCore]],
        resumption: Resumption,
        identify: Identify,
        admit: Callable[[], None],
    ) -> None:
        self._current = current
        self._resumption = resumption
        self._identify = identify
        self._admit = admit

    def routes(self) -> list[Route]:
        chat = [("POST", path, self._chat) for path in CHAT_PATHS]
        models = [("GET", path, self._models) for path in MODEL_PATHS]
        return [*chat, *models]

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self._admit()
        lane, core = self._current()
        head = head_of(request)
        identities = identities_of(head, core, self._identify)
        async with lane.in_use():
            caller = next(iter(identities.values())).caller
            note(request, key=caller.name)
            content = await content_of(request, caller, limit_bytes=lane.body_bytes, limit_name="limits.context_body")
            await check_values(content, limit=lane.body_values)
            body = await aside(partial(chat_request, content, needs_model=core.needs_model), content=content)
            target = core.target_of(body)
            identity = identities.get(target.has_key) or self._identify(head, target.has_key, "context")
            note(request, key=identity.caller.name, upstream=target.pool.endpoint.name)
            asking = await aside(
                partial(_asking, head, identity.caller, path=request.path, content=content), content=content
            )
            asking = lane.runs.marked(asking)
            run = lane.runs.find(asking)
            if run is None:
                run_id = request[REQUEST_ID] = new_run_id()
                exchange = await lane.exchange(head, body, identity=identity, run_id=run_id, asking=asking)
                run = await self._run(lane, Asked(body=body, asking=asking, exchange=exchange))
            request[REQUEST_ID] = run.request_id
            try:
                response = await lane.answer(request, run)
            except GatewayError:
                self._resumption.delivered(run, asking)
                raise
            self._resumption.delivered(run, asking)
            return response

    async def _run(self, lane: ContextLane, asked: Asked) -> LiveRun:
        """A run of its own, of a workflow where the message names one; one that goes on with what a person decided, or
        the one that the request repeats. What a program quotes for a task of its own decides and starts nothing.
        """
        if asked.exchange.task is not None:
            return lane.begin(asked.exchange, asked.asking)
        text = whole_text(asked.body)
        decision = parse_reply(text)
        if decision is not None:
            return await self._resumption.reply(decision, asked)
        if (waits := await self._resumption.asked_before(asked)) is not None:
            return waits
        stored = await lane.earlier(asked.asking, asked.exchange.caller)
        if stored is not None and (stored.effects or stored.state not in ENDED):
            return await self._resumption.repeat(stored, asked)
        if (named := named_approvals(text)) and (run := await self._resumption.named(named, asked)) is not None:
            return run
        called = called_in(text, lane.workflows)
        exchange = asked.exchange if called is None else replace(asked.exchange, workflow=use_of(*called))
        return lane.begin(exchange, asked.asking, brought=await self._brought(lane, text, asked))

    async def _brought(self, lane: ContextLane, text: str, asked: Asked) -> Brought | None:
        """Returns what gives the beginning of the answer, where the gateway has something to say itself."""
        if not wants_text(asked.body):
            return None  # an answer in another format is the client's
        told = await unasked(text, asked.exchange, lane.desk.remembered)
        brought = await self._resumption.brought(asked)
        if not told:
            return brought

        async def both() -> str:
            return told + ("" if brought is None else await brought())

        return both

    async def _models(self, request: web.Request) -> web.StreamResponse:
        _, core = self._current()
        head = head_of(request)
        identity = self._identify(head, core.has_key({}), "context")
        header, credential = forwarded(head, identity.consumed)
        status, content_type, content = await core.models(
            header=header, credential=credential, credential_header=credential_header(head)
        )
        return web.Response(status=status, body=content, headers={"Content-Type": content_type})


def identities_of(head: RequestHead, core: ModelCore, identify: Identify) -> Mapping[bool, Identity]:
    """Who asks, where the upstream has a key of its own and where it has none. Raises GatewayError if nobody does.

    That is before the body is read, which says which upstream it is: a stranger's is not worth reading.
    """
    identities: dict[bool, Identity] = {}
    refusals = []
    for upstream_has_key in core.key_kinds:
        try:
            identities[upstream_has_key] = identify(head, upstream_has_key, "context")
        except GatewayError as error:
            refusals.append(error)
    if not identities:
        raise refusals[0]
    return identities


def _asking(head: RequestHead, caller: Caller, *, path: str, content: bytes) -> Asking:
    key = head.value(b"idempotency-key")
    retries = head.value(b"x-stainless-retry-count") or b"0"
    return Asking(
        fingerprint(tenant=caller.tenant, caller=caller.name, path=path, steering=steering_of(head), content=content),
        None if key is None else (caller.tenant, caller.name, key.decode("latin-1")),
        repeats=retries.isdigit() and int(retries) > 0,
        size_bytes=len(content),
    )
