"""A plan is built from its head in one pass: the same head and caller make the same records."""

from lanes.assembled import alone, endpoint, keyring, read, router

from gateway.lanes.passthrough.dispatch.model_routing import ModelRoutingFactory
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


def test_a_chunked_body_has_no_length() -> None:
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
