"""The context lane: one request through its chain, for a client that knows nothing of the chain.

The head and first chunk of a stream are sent once the upstream has accepted the request. A later failure is sent as an
error in the stream, and never looks like an end.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Literal, TypeAlias

from aiohttp import HttpVersion11, web

from gateway.approvals.approvals import Approvals
from gateway.auth.keyring import Identity
from gateway.context.approval_mode import ApprovalMode, ApprovalModes
from gateway.context.chain import Chain
from gateway.context.client_background_requests import find_requested_task
from gateway.context.context_headers import (
    build_unknown_name_error,
    find_end_user,
    parse_context_headers,
    parse_tool_names,
)
from gateway.context.headers import build_answerer_headers, find_credential_header, select_forwarded_headers
from gateway.context.lane_refcount import LaneUse
from gateway.context.prefixed_run import Brought, with_earlier_result
from gateway.context.request_tools import NO_WISHES, Addresses, apply_wishes
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk, Delivery, Exchange, Handler, Job, Origin, Reply, ToolSteering
from gateway.contracts.records import make, replace
from gateway.contracts.storage.journal import StoredRun
from gateway.contracts.storage.store import Json, UntoldError
from gateway.dialects.dialect import AnswerStream, DialectAnswer, Wishes
from gateway.http.request_head import RequestHead
from gateway.lanes.aiohttp_adapter import Facade, add_log_facts
from gateway.model.hooks import ContextHook, admit_run, wait_for_room
from gateway.runs.idempotency_key import RequestKey
from gateway.runs.live import LiveRuns
from gateway.runs.live_run import LiveRun
from gateway.tools.catalog import Catalog
from gateway.workflows.definition import Workflow

log = logging.getLogger("gateway")

#: Stores an answer as it stands. Raises GatewayError where the client must not take it for stored.
Keep: TypeAlias = Callable[[], Awaitable[None]]
_STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRules:
    """The rules by which the headers of a request are read: defaults, prompts, and how its run waits for people."""

    chain: str
    prompt: str
    prompt_text: Callable[[str, str], Awaitable[str | None]]  # of a prompt and a tenant
    prompt_names: Callable[[str], Awaitable[Sequence[str]]]  # of a tenant
    approval_modes: ApprovalModes
    service_url: Callable[[str], str | None]  # as the operator configured it, with its secrets
    tasks: Literal["plain", "off"] = "plain"

    async def choose_prompt(self, named: str | None, body: Json, *, tenant: str) -> str | None:
        """Return the base prompt of a request that names this one, or none. Raises GatewayError."""
        if named is None and not any(map(_is_prompt, body["messages"])):
            return self.prompt
        if named is not None and await self.prompt_text(named, tenant) is None:
            names = await self.prompt_names(tenant)
            raise build_unknown_name_error("prompt", "system prompt", named, names, code="prompt_not_found")
        return named


def _is_prompt(message: Json) -> bool:
    """Return whether a message is a system prompt of the client's. One for the model's server alone has no text."""
    is_system = message.get("role") in ("system", "developer")
    return is_system and (bool(message.get("content")) or "messages_api" not in message)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneBounds:
    """The bounds of requests, and of the silence of answers."""

    body_bytes: int
    body_values: int
    keepalive_s: float
    status_wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The handlers of runs that do not go through a whole chain, and the one around all for traces."""

    plain: Handler  # the model alone, for tasks of programs
    calling: Handler  # an agent loop with nothing around it, for tool calls
    traced: Callable[[Handler], Handler] | None = None


@dataclass(slots=True, kw_only=True)
class ContextLane:
    """The context lane of one configuration. A reload builds another.

    `close` closes its tools once the lane is retired and its last request is over.
    """

    chains: Mapping[str, Chain]
    rules: RequestRules
    bounds: LaneBounds
    handlers: Handlers
    approvals: Approvals
    catalog: Catalog
    runs: LiveRuns
    earlier: Callable[[RequestKey, Caller], Awaitable[StoredRun | None]]
    close: Callable[[], Awaitable[None]]
    workflows: Mapping[str, Workflow] = field(default_factory=dict)
    hooks: Sequence[ContextHook] = ()
    _using: int = 0
    _retired: bool = False

    async def retire(self) -> None:
        """Retire the lane: close its tools once no request uses them. Idempotent."""
        if not self._retired:
            self._retired = True
            if not self._using:
                await self.close()

    def open_use(self) -> LaneUse:
        """Return a use of the lane, which keeps its tools open from now until it ends."""
        self._using += 1
        return LaneUse(self._end_use)

    def begin_use(self) -> Callable[[], Awaitable[None]]:
        """Return the end of a use that begins now (`Equipment.hold`)."""
        return self.open_use().end

    async def _end_use(self) -> None:
        """End one use: the last one of a retired lane closes its tools."""
        self._using -= 1
        if self._retired and not self._using:
            await self.close()

    async def build_exchange(
        self,
        head: RequestHead,
        body: Json,
        *,
        identity: Identity,
        run_id: str,
        request_key: RequestKey | None = None,
        steering: Mapping[str, str] | None = None,
        wishes: Wishes = NO_WISHES,
        streams: bool = True,
        client: Json | None = None,
    ) -> Exchange:
        """Return the request as the chain gets it. `steering` is that of its head. Raises GatewayError."""
        steering = head.remember_derived(parse_context_headers) if steering is None else steering
        rules = self.rules
        chain = steering.get("chain", rules.chain)
        if chain not in self.chains:
            raise build_unknown_name_error("chain", "chain", chain, self.chains)
        looks = rules.tasks == "plain" and not wishes.background
        task = find_requested_task(steering.get("task"), body["messages"], look=looks)
        prompt = await rules.choose_prompt(steering.get("prompt"), body, tenant=identity.caller.tenant)
        header, credential = head.remember_derived(select_forwarded_headers, identity.consumed)
        key = None if request_key is None else request_key.idempotency_key
        only = parse_tool_names(steering["tools"], self.catalog.list_names()) if "tools" in steering else ()
        approvals = rules.approval_modes.get_mode(steering.get("approvals"), caller=identity.caller, chain=chain)
        exchange = make(
            Exchange,
            id=run_id,
            body=body,
            caller=identity.caller,
            chain=chain,
            prompt=prompt if task is None else None,
            conversation=steering.get("conversation"),
            user=find_end_user(steering, body),
            steering=_make_steering(only, approvals),
            job=_make_job(task),
            delivery=_make_delivery(streams=streams, events=steering.get("events") == "1"),
            origin=make(
                Origin,
                fingerprint="" if request_key is None else request_key.fingerprint,
                idempotency_key=None if key is None else key[2],
                client=client,
                header=header,
                credential=credential,
                credential_header=head.remember_derived(find_credential_header),
            ),
        )
        if wishes == NO_WISHES:
            return exchange
        addresses = Addresses(service=rules.service_url, host=(head.find_value(b"host") or b"").decode("latin-1"))
        wished = apply_wishes(exchange, wishes, catalog=self.catalog, addresses=addresses)
        if wished.delivery.background and (task is not None or self.find_loop_handler(chain) is None):
            why = f"the chain {chain!r} has none" if task is None else "X-Context-Task sends the request past it"
            raise GatewayError(
                "unsupported_parameter",
                f"An answer in the background needs a chain with 'agent_loop', and {why}: leave 'background' out.",
                param="background",
            )
        return wished

    async def begin(
        self, exchange: Exchange, request_key: RequestKey, *, detached: bool = False, brought: Brought | None = None
    ) -> LiveRun:
        """Start a run of the chain, of a workflow with its agent loop, or of a tool call. Raises GatewayError.

        If a request with the same key started the run while this one waited, return that run. `brought` returns
        the beginning of the answer. It waits only where gateways share the limits of the caller.
        """
        name = exchange.chain
        handler = self.chains[name].handler if exchange.job.workflow is None else self.find_loop_handler(name)
        if exchange.job.is_one_call:
            handler = self.handlers.calling
        elif exchange.job.task is not None and exchange.job.workflow is None:
            handler = self.build_plain_handler(name)
        if handler is None:
            raise GatewayError("workflow_failed", f"The chain {name!r} runs no tools: add 'agent_loop' to it.")
        if brought is not None:
            handler = with_earlier_result(handler, brought, loops=self.find_loop_handler(name) is not None)
        handler = self.with_open_tools(handler)
        detached = detached or exchange.delivery.background
        return await wait_for_room(
            lambda: (
                self.runs.find(request_key)
                or self._admit_run(
                    exchange,
                    lambda: self.runs.begin(exchange, request_key, handler, detached=detached),
                    calls_model=not exchange.job.is_one_call,
                )
            )
        )

    async def admit_run(self, exchange: Exchange, begin: Callable[[], LiveRun]) -> LiveRun:
        """Begin a run, if no feature refuses it. Raises GatewayError (429) if the caller's limits have no room."""
        return await wait_for_room(lambda: self._admit_run(exchange, begin))

    def _admit_run(self, exchange: Exchange, begin: Callable[[], LiveRun], *, calls_model: bool = True) -> LiveRun:
        """Begin a run, if no feature refuses it. Raises GatewayError: there is no room, or it is not known."""
        admissions = admit_run(self.hooks, exchange, calls_model=calls_model)
        try:
            run = begin()
        except BaseException:
            for admission in admissions:
                admission.close()
            raise
        for admission in admissions:
            run.answer.over_limit = run.answer.over_limit or admission.over_limit
            run.add_done_callback(admission.close)
        return run

    def build_plain_handler(self, chain: str) -> Handler:
        """Return the model alone, behind the stages of a chain that guard answers."""
        return self.chains[chain].build_plain_handler(self.handlers.plain)

    def find_loop_handler(self, chain: str) -> Handler | None:
        """Return the chain from its agent loop on, or None if it has none."""
        found = self.chains.get(chain)
        return None if found is None else found.find_loop_handler()

    def find_resume_handler(self, run: StoredRun) -> Handler | None:
        """Return the handler for a resumed run, or None if its chain runs no tools any more."""
        if run.kind == "chat":
            chain = self.chains.get(run.chain)
            handler = None if chain is None else chain.find_resume_handler()
        else:
            handler = self.handlers.calling if run.kind == "tool" else self.find_loop_handler(run.chain)
        return None if handler is None else self.with_open_tools(handler)

    def with_open_tools(self, handler: Handler) -> Handler:
        """Return `handler` with this lane's tools open as long as its reply lasts: runs outlive their requests."""
        traced = self.handlers.traced
        handler = handler if traced is None else traced(handler)

        async def handle(exchange: Exchange) -> Reply:
            use = self.open_use()
            try:
                reply = await handler(exchange)
            except BaseException:
                await use.end()
                raise

            async def release() -> None:
                try:
                    await reply.release()
                finally:
                    await use.end()

            return replace(reply, release=release)

        return handle

    async def send_answer(
        self, request: web.Request, run: LiveRun, answer: DialectAnswer, *, streams: bool, keep: Keep | None = None
    ) -> web.StreamResponse:
        """Send the answer of a run, new or joined, from its first byte. `answer` writes it as the client reads it.

        `keep` is awaited once the answer is written, before its end is sent, and before an error ends a stream. If it
        fails, the client gets an error in place of the end.
        """
        exchange, request_id = run.exchange, run.request_id
        headers = {"X-Context-Run-Id": exchange.id, "X-Context-Chain": exchange.chain, "x-request-id": request_id}
        headers |= answer.headers
        if exchange.job.task is not None:
            headers["X-Context-Task"] = exchange.job.task
        whole = False
        facts: dict[str, object] = {}  # of its end, for the access log
        add_log_facts(request, run=exchange.id, request_id=request_id)
        self.runs.join(run)
        try:
            if streams:  # an error that the upstream answers at once is told with its status: SDKs try those again
                await run.transcript.wait_until_open(within_s=self.bounds.status_wait_s)
            else:
                await run.wait_for_reply()
            if run.answer.intent is not None:
                headers["X-Context-Intent"] = run.answer.intent.kind
            chunks = () if streams else await run.transcript.wait_for_whole()
            if run.answer.cache is not None:
                headers["X-Context-Cache"] = run.answer.cache
            headers |= build_answerer_headers(run)
            for hook in self.hooks:
                headers |= hook.build_answer_fields(exchange.caller)
            if run.answer.over_limit is not None:
                headers["X-Context-Limit"] = run.answer.over_limit
            if streams:
                stream = _Stream(
                    request, answer.build_stream_writer(), run, keepalive_s=self.bounds.keepalive_s, keep=keep
                )
                response: web.StreamResponse = await stream.run(headers)
            else:
                headers["Content-Type"] = "application/json"
                response = web.Response(body=answer.build_whole(chunks), headers=headers)
                if keep is not None:
                    with run.convert_store_errors():
                        await keep()
            whole = True
            if (usage := answer.usage) is not None:
                facts["prompt_tokens"] = usage.get("prompt_tokens")
                facts["completion_tokens"] = usage.get("completion_tokens")
        except GatewayError:
            whole = True
            raise
        finally:
            if (by := run.answer.by) is not None:
                facts |= {"upstream": by.upstream, "endpoint": by.endpoint, "model": by.model}
            add_log_facts(request, **facts)
            self.runs.remove_client(run, whole=whole)
        return response


# Requests that want the same share their records: to make three of them would cost more than all else of an exchange.


@lru_cache
def _make_steering(only_tools: tuple[str, ...], approvals: ApprovalMode) -> ToolSteering:
    return ToolSteering(only_tools=only_tools, approvals=approvals)


@lru_cache
def _make_job(task: str | None) -> Job:
    return Job(task=task)


@cache
def _make_delivery(*, streams: bool, events: bool) -> Delivery:
    return Delivery(streams=streams, events=events)


class _Stream:
    """One answer as server-sent events, with a frame of the dialect after each silence of `keepalive_s`."""

    def __init__(
        self, request: web.Request, writer: AnswerStream, run: LiveRun, *, keepalive_s: float, keep: Keep | None
    ) -> None:
        self._request = request
        self._writer = writer
        self._keep = keep
        self._response: web.StreamResponse  # from `run` on
        self._run = run
        self._request_id = run.request_id
        self._transcript = run.transcript
        self._keepalive_s = keepalive_s
        self._loop = run.transcript.loop
        self._written_s = 0.0
        self._beat: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None
        self._over = False
        self._owed = b""  # to a client that does not keep up
        self._wire: Facade | None = None  # behind the head, for chunks that need no waiting

    async def run(self, headers: Mapping[str, str]) -> web.StreamResponse:
        """Send the whole stream: head, answer, and its end or an error."""
        self._response = web.StreamResponse(headers={**_STREAM_HEADERS, **headers})
        if self._request.version >= HttpVersion11:
            self._response.enable_chunked_encoding()
        if self._response.chunked and isinstance(self._request.transport, Facade):
            self._wire = self._request.transport
            self._wire.hold_writes()
        await self._response.prepare(self._request)
        try:
            await self._write(self._writer.build_first_frame())
            self._schedule_keepalive()
            await self._relay_answer()
            last = self._writer.finish()
            if self._keep is not None:
                with self._run.convert_store_errors():
                    await self._keep()
        except UntoldError as error:  # how it ends, or has ended, is on record
            add_log_facts(self._request, error_code=error.code)
            last = self._writer.build_error_frames(error, request_id=self._request_id)
        except GatewayError as error:
            add_log_facts(self._request, error_code=error.code)
            last = self._writer.build_error_frames(error, request_id=self._request_id)
            if self._keep is not None:
                with suppress(GatewayError):
                    await self._keep()
        except (ConnectionResetError, asyncio.CancelledError):
            raise
        except Exception:
            # The head is out: the guard of our pages could not answer any more.
            log.exception("a context stream failed, request id %s", self._request_id)
            failure = GatewayError("internal_error", "The gateway failed; its log has this request id.")
            add_log_facts(self._request, error_code=failure.code)
            last = self._writer.build_error_frames(failure, request_id=self._request_id)
        await self._response.write_eof(last)
        return self._response

    def take(self, chunks: Sequence[Chunk]) -> bool:
        """Write the chunks now. Return False if the client is slow: `wait_until_caught_up` sends them (`Listener`)."""
        frames = b"".join(map(self._writer.build_frames, chunks))
        if not frames or self._write_now(frames):
            return True
        self._owed = frames
        return False

    async def wait_until_caught_up(self) -> None:
        """Write the chunks that `take` could not write. See `Listener`."""
        owed, self._owed = self._owed, b""
        await self._response.write(owed)

    async def _relay_answer(self) -> None:
        """Write the answer of the run as it comes, and stop the keepalives at its end."""
        try:
            await self._transcript.read(self)
        finally:
            self._over = True  # behind the end, or an error, nothing may come
            if self._beat is not None:
                self._beat.cancel()

    async def _write(self, frame: bytes) -> None:
        if not self._write_now(frame):
            await self._response.write(frame)

    def _write_now(self, frame: bytes) -> bool:
        """Write a chunk in a fifth of aiohttp's time. Return False if the client is slow: then `write` must send it."""
        self._written_s = self._loop.time()
        if not frame:  # its chunk would end the body
            return True
        return self._wire is not None and self._wire.put(b"%x\r\n%b\r\n" % (len(frame), frame))

    def _schedule_keepalive(self) -> None:
        """Send a keepalive if none or nothing was sent for a while, and schedule the next check."""
        due_s = self._written_s + self._keepalive_s
        if self._loop.time() >= due_s - 0.001:
            if self._beating is None or self._beating.done():  # else the client does not read: one is enough
                self._beating = self._loop.create_task(self._keep_alive())
            due_s = self._loop.time() + self._keepalive_s
        self._beat = self._loop.call_at(due_s, self._schedule_keepalive)

    async def _keep_alive(self) -> None:
        if not self._over:
            with suppress(ConnectionResetError):  # the task that relays the answer notices, too
                await self._write(self._writer.build_keepalive())
