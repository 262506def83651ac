"""A plan is built from its head in one pass: the same head and caller make the same records."""

from collections.abc import Iterable

import pytest
from lanes.assembled import alone, endpoint, keyring, read, router

from gateway.contracts.caller import Caller
from gateway.features.usage.observer import UsageObserver
from gateway.lanes.passthrough.dispatch.model_routing import ModelRoutingFactory
from gateway.lanes.passthrough.observers.observer import PassthroughFeature
from gateway.lanes.passthrough.plan import Plan
from gateway.lanes.router import Router
from gateway.lanes.routes import Route
from gateway.testing.clock import ManualClock
from gateway.upstream.pool import Pool

LINE = b"POST /v1/chat/completions?a=1 HTTP/1.1"


def planned(way_in: Router, *lines: bytes) -> Plan:
    raw = b"\r\n".join((*lines[:1], b"Host: gw", *lines[1:]))
    found = way_in.route(read(raw + b"\r\n\r\n"), raw)
    assert found is not None
    return found[0]


def test_plan_records_match_the_request_head() -> None:
    plan = planned(router(endpoint(name="up")), LINE, b"Content-Length: 12", b"Expect: 100-continue")
    head = plan.head
    assert (head.method, head.path, head.minor, head.length) == (b"POST", b"/v1/chat/completions", 1, 12)
    assert (head.keep_alive, head.expects_continue, head.websocket) == (True, True, False)
    assert (plan.target.group.name, plan.target.endpoint, plan.policy.held_bytes) == ("up", None, None)
    assert plan.policy.repeatable and plan.policy.plain and not plan.policy.watched


def test_plan_of_a_chunked_request_has_no_body_length() -> None:
    assert planned(router(endpoint()), LINE, b"Transfer-Encoding: chunked").head.length is None


def test_a_plan_keeps_the_caller_and_no_text_of_its_key() -> None:
    plan = planned(router(endpoint(), keys=keyring("sk-a")), LINE, b"Content-Length: 2", b"X-Gateway-Key: sk-a")
    identity = plan.target.identity
    assert (identity.caller.name, identity.texts) == ("sk-a", frozenset())
    assert b"sk-a" not in b"".join(plan.target.head)


def test_model_routing_dispatcher_is_planned_for_requests_with_a_body() -> None:
    """A request without a body has no model, so it goes the usual way."""
    pools = [Pool(endpoint(name=name), clock=ManualClock()) for name in ("one", "two")]
    way_in = router(
        endpoint(), groups=[alone(pool) for pool in pools], routes=[Route(b"/v1/", 0, True)], models=[(), ("llama*",)]
    )
    asked = planned(way_in, LINE, b"Content-Length: 2")
    assert isinstance(asked.dispatcher, ModelRoutingFactory) and asked.dispatcher.most_targets == 2
    assert planned(way_in, b"GET /v1/models HTTP/1.1").dispatcher is None


class Wanting(PassthroughFeature):
    """A feature without an observer, which needs tokens, perhaps at once, or the whole body."""

    def __init__(self, *, tokens: bool = False, at_once: bool = False, body: bool = False) -> None:
        self.reads_at_once = at_once
        self._tokens = tokens
        self._body = body

    def needs_tokens(self, caller: Caller) -> bool:
        return self._tokens

    def needs_whole_body(self, caller: Caller, upstreams: Iterable[str], *, by_model: bool) -> bool:
        assert list(upstreams) == ["up"] and not by_model
        return self._body


@pytest.mark.parametrize("at_once", [False, True])
def test_tokens_are_read_if_any_feature_needs_them(at_once: bool) -> None:
    """Nothing is recorded here. At once: the answer does not wait in the batch."""
    assert planned(router(endpoint(), further=[Wanting()]), LINE, b"Content-Length: 2").observers is None
    way_in = router(endpoint(), further=[Wanting(tokens=True, at_once=at_once)])
    observers = planned(way_in, LINE, b"Content-Length: 2").observers
    assert observers is not None
    (make,) = observers.makers
    assert make.func is UsageObserver and (make.args[1] is None) == at_once


def test_body_is_held_if_any_feature_needs_it_whole() -> None:
    for body in (False, True):
        plan = planned(router(endpoint(name="up"), further=[Wanting(body=body)]), LINE, b"Content-Length: 2")
        assert (plan.policy.held_bytes is not None) == body
