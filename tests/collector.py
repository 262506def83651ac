"""An OpenTelemetry collector: an HTTP server that reads OTLP with the messages of `opentelemetry-proto`."""

import asyncio
import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from gateway.testing.raw_connection import PATIENCE_S

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
#: A caller of another program, in another trace than those of a gateway, which are random.
TRACE, SENDER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SENDER}-01"


@dataclass(frozen=True)
class Seen:
    """A span as the collector has it. Times are Unix nanoseconds; without a parent, `parent` is ""."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    state: str
    attributes: Mapping[str, Any]
    links: tuple[str, ...]
    failed: bool
    remote: bool
    began_ns: int
    ended_ns: int
    resource: Mapping[str, Any]
    schema: str

    @property
    def text(self) -> str:
        """Everything that it says, for what must not be in it."""
        return json.dumps([self.name, dict(self.attributes), dict(self.resource)], default=str)


class Collector:
    """`async with Collector() as collector` receives at `collector.url`. `statuses` are those of its first answers."""

    def __init__(self, *statuses: int) -> None:
        self.spans: list[Seen] = []
        self.headers: list[Mapping[str, str]] = []
        self._statuses = list(statuses)
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/traces", self._receive)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.headers.append(dict(request.headers))
        status = self._statuses.pop(0) if self._statuses else 200
        if status == 200:
            if body[:2] == b"\x1f\x8b":
                body = gzip.decompress(body)
            self.spans += spans_in(ExportTraceServiceRequest.FromString(body))
        self._news.set()
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, status=status, headers={"Content-Type": "application/x-protobuf"})

    async def until(self, *names: str, where: Callable[[list[Seen]], bool] | None = None) -> list[Seen]:
        """All spans, once there are some of these names, and `where` is true of all."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while not (set(names) <= {one.name for one in self.spans} and (where is None or where(self.spans))):
                    self._news.clear()
                    await self._news.wait()
                return self.spans
        raise AssertionError(f"no {names} among these spans: {[one.name for one in self.spans]}")

    async def one(self, name: str) -> Seen:
        """The only span of this name."""
        (found,) = [one for one in await self.until(name) if one.name == name]
        return found


def spans_in(request: ExportTraceServiceRequest) -> list[Seen]:
    return [
        Seen(
            name=span.name,
            kind=KINDS[span.kind],
            trace=span.trace_id.hex(),
            id=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            state=span.trace_state,
            attributes=_plain(span.attributes),
            links=tuple(link.span_id.hex() for link in span.links),
            failed=span.status.code == 2,
            remote=bool(span.flags & 0x200),
            began_ns=span.start_time_unix_nano,
            ended_ns=span.end_time_unix_nano,
            resource=_plain(of_resource.resource.attributes),
            schema=of_scope.schema_url,
        )
        for of_resource in request.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


def _plain(attributes: Iterable[Any]) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(map(_value, value.array_value.values))
    return getattr(value, kind)


def tree(spans: Iterable[Seen], *, top: str = "") -> list[str]:
    """The names of the spans below `top`, indented by their depth, in the order in which they began."""
    known = sorted(spans, key=lambda one: one.began_ns)

    def below(parent: str, depth: int) -> list[str]:
        lines = []
        for one in known:
            if one.parent == parent:
                lines += [f"{'  ' * depth}{one.name}", *below(one.id, depth + 1)]
        return lines

    return below(top, 0)
