"""The list of models: that of one upstream as it is, or the aliases and all upstreams' as one.

A merged list names what its client can use: the aliases, and of each upstream the models whose requests go there. All
upstreams get the request at once. One that fails, or does not answer in time, is left alone for a while. Meanwhile the
list has what it listed last, if the gateway has a key for it: otherwise its list belongs to one client's credential.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from http import HTTPStatus
from typing import Final

import orjson

from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.model_names import MODEL_CHARS
from gateway.contracts.storage.store import Json
from gateway.jsontext.value_count import SERVICE_VALUES_LIMIT, holds_more
from gateway.model.apis.table import get_model_api
from gateway.model.candidates import ModelTable
from gateway.model.http_request import build_list_request
from gateway.model.upstream_client import ModelUpstream, Target
from gateway.upstream.call import UpstreamCall
from gateway.upstream.endpoint_state import Member

log = logging.getLogger("gateway")

#: Longest list of models that is read.
LIST_LIMIT_BYTES: Final = 4 << 20
#: Longest wait for an upstream among several, and the pause after one that failed, in seconds.
WAIT_S: Final = 2.0
PAUSE_S: Final = 30.0
#: Statuses by which servers, and proxies in front of them, refuse a request for its header lines.
_OF_LINES: Final = frozenset((400, 413, 431, 494))
#: A longer list is read in a separate thread.
_LARGE_BYTES: Final = 1 << 16
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class ListingClient:
    """The client's header lines that go on, and its credential's lines, in whose header an upstream's own key goes."""

    caller: Caller
    _: KW_ONLY
    lines: bytes
    credential: bytes
    header: bytes


@dataclass(slots=True)
class ModelLists:
    """The lists of the upstreams of one configuration. `clock` is monotonic, in seconds."""

    table: ModelTable
    clock: Callable[[], float]
    merged: bool = False
    _known: dict[str, Sequence[Json]] = field(default_factory=dict)
    _paused_until_s: dict[str, float] = field(default_factory=dict)

    async def __call__(self, asking: ListingClient) -> tuple[int, str, bytes]:
        """Return (status, content type, body). Raises GatewayError."""
        if not self.merged:
            upstream = self.table.get_candidates({}).models[0].upstream
            asking.caller.check_upstream(upstream.name)
            return await _fetch_list(upstream, asking)
        return HTTPStatus.OK, _JSON, orjson.dumps({"object": "list", "data": await self._list_all_models(asking)})

    async def _list_all_models(self, asking: ListingClient) -> list[Json]:
        """Return aliases and models of all upstreams that the caller may use, each name once."""
        caller, first = asking.caller, self.table.get_candidates({}).models[0].upstream
        upstreams = [upstream for upstream in self.table.upstreams if caller.may_use_upstream(upstream.name)]
        elsewhere = replace(asking, credential=b"")  # it was sent for the first upstream
        answers = await asyncio.gather(
            *(self._get_models(one, asking if one is first else elsewhere) for one in upstreams)
        )
        aliases = [alias for alias in self.table.aliases if self.table.get_candidates_by_name(alias).is_allowed(caller)]
        listed = {alias: _build_alias_entry(alias) for alias in aliases}
        for upstream, models in zip(upstreams, answers, strict=True):
            for model in models:
                name = model["id"]
                if name not in listed and caller.may_use_model(name) and self.table.get_upstream(name) is upstream:
                    listed[name] = model
        return list(listed.values())

    async def _get_models(self, upstream: ModelUpstream, asking: ListingClient) -> Sequence[Json]:
        """Return the models of one upstream: its present list, or its last one if that fails."""
        if self.clock() >= self._paused_until_s.get(upstream.name, 0.0):
            try:
                async with asyncio.timeout(WAIT_S):
                    models = await _fetch_models(upstream, asking)
            except GatewayError as error:
                why = error.message
            except TimeoutError:
                why = f"it did not answer within {WAIT_S:g} s"
            else:
                if models is None:
                    return self._known.get(upstream.name, ())
                if upstream.has_key:
                    self._known[upstream.name] = models
                return models
            log.warning("models of upstream %r are not looked for again for %g s: %s", upstream.name, PAUSE_S, why)
            self._paused_until_s[upstream.name] = self.clock() + PAUSE_S
        return self._known.get(upstream.name, ())


async def _fetch_list(upstream: ModelUpstream, asking: ListingClient) -> tuple[int, str, bytes]:
    """Return (status, content type, body) of the upstream's own list, by the first endpoint that answers.

    Raises GatewayError.
    """
    group, tried, failure = upstream.group, list[Member](), None
    while (member := group.choose(b"", None, without=tried)) is not None:
        tried.append(member)
        target = Target(member.pool, group)
        try:
            return await _fetch_from_target(target, asking)
        except GatewayError as error:
            target.log_failure(error)
            failure = error
    raise failure or group.build_unavailable_error(None)


async def _fetch_from_target(target: Target, asking: ListingClient) -> tuple[int, str, bytes]:
    """Return status, content type and body of an endpoint's list of models. Raises GatewayError."""
    call = UpstreamCall(target.pool, method=b"GET")
    try:
        request = build_list_request(target, asking.lines, credential=asking.credential, header=asking.header)
        head = await call.send(request)
        content = await call.read_within(LIST_LIMIT_BYTES)
    finally:
        call.close()
    if len(content) > LIST_LIMIT_BYTES:
        raise target.build_answer_error(f"its list of models is longer than {LIST_LIMIT_BYTES} bytes")
    content_type = head.find_value(b"content-type") or _JSON.encode()
    if head.status == HTTPStatus.OK:
        content = get_model_api(target.pool.endpoint).convert_models(content)
    return head.status, content_type.decode("latin-1"), content


async def _fetch_models(upstream: ModelUpstream, asking: ListingClient) -> Sequence[Json] | None:
    """Return the models that an upstream lists; None: it refuses this client, and others may be served.

    Raises GatewayError.
    """
    status, _, content = await _fetch_list(upstream, asking)
    if status == HTTPStatus.OK:
        models = _parse_list(content) if len(content) < _LARGE_BYTES else await asyncio.to_thread(_parse_list, content)
        if models is not None:
            return models
    elif status in _OF_LINES or (status < HTTPStatus.INTERNAL_SERVER_ERROR and not upstream.has_key):
        return None
    why = "no list of models" if status == HTTPStatus.OK else f"status {status}"
    raise GatewayError("upstream_error", f"it answered with {why}")


def _parse_list(content: bytes) -> Sequence[Json] | None:
    """Return the named models in a list of models; None for content of another form."""
    if holds_more(content, SERVICE_VALUES_LIMIT):
        return None
    try:
        listed = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    models = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(models, list):
        return None
    return [model for model in models if isinstance(model, dict) and _is_name(model.get("id"))]


def _is_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MODEL_CHARS


def _build_alias_entry(alias: str) -> Json:
    return {"id": alias, "object": "model", "created": 0, "owned_by": "gateway"}
